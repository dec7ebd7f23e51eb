-- completed_before(job, run_lease) -> 'completed' where just that attempt has completed its job and a row tells of it, as of what was moved to
-- leases; else null. So finish knows a handler's own completion. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.completed_before(p_job_id bigint, p_run_lease bigint) returns text
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return (
        select f.state
        from jobs_finished as f
        where f.job_id = p_job_id and f.run_lease = p_run_lease and f.state = 'completed');
end
$$;
