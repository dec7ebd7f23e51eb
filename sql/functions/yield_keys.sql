-- yield_keys(keys, masks, job_ids) -> how many keys were given up by these jobs, which are being claimed: those whose mask has
-- available and not running. Guard: the caller's, which claims the jobs. Locks: the rows. Errors: none.
create or replace function {schema}.yield_keys(p_keys bytea[], p_masks int[], p_job_ids bigint[]) returns int
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_keys bytea[];
    v_ids bigint[];
begin
    select array_agg(k.key order by k.key), array_agg(k.job_id order by k.key) into v_keys, v_ids
    from unnest(p_keys, p_masks, p_job_ids) as k(key, mask, job_id)
    where not states_hold(k.mask, 'running');
    return case when v_keys is null then 0 else drop_keys(v_keys, v_ids) end;
end
$$;
