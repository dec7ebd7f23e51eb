-- drop_keys(keys, job_ids) -> how many of these keys were given up: those that these very jobs held.
-- Guard: the caller's, which moved the job. Locks: the rows. Errors: none.
create or replace function {schema}.drop_keys(p_keys bytea[], p_job_ids bigint[]) returns int
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_count int;
begin
    delete from unique_claims as u
    using unnest(p_keys, p_job_ids) as w(unique_key, job_id)
    where u.unique_key = w.unique_key and u.job_id = w.job_id;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
