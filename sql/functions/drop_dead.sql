-- drop_dead(ids) -> those that were deleted from the dead letter queue; what another session holds is left.
-- Arrow: failed (dead) -> gone. Guard: the row. Locks: these rows in order of id, skip locked. Errors: none.
create or replace function {schema}.drop_dead(p_ids bigint[]) returns bigint[]
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_gone bigint[];
    v_keys bytea[];
begin
    with held as materialized (
        select x.job_id from jobs_dead as x where x.job_id = any (p_ids) order by x.job_id for update skip locked
    ),
    gone as (
        delete from jobs_dead as x using held as h where x.job_id = h.job_id
        returning x.job_id, x.unique_key
    )
    select coalesce(array_agg(g.job_id), '{}'), array_agg(g.unique_key) into v_gone, v_keys from gone as g;
    perform drop_keys(array_agg(k.key), array_agg(k.job_id))
    from unnest(v_keys, v_gone) as k(key, job_id)
    where k.key is not null
    having count(*) > 0;
    return v_gone;
end
$$;
