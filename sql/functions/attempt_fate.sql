-- attempt_fate(job, run_lease) -> how that attempt ended, for a handler that waits and finds it gone: completed; failed; expired (its
-- callback was not answered in time); cancelled; retried (the job runs again from the top); '' where the job has gone on since, or
-- nothing more can be told.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.attempt_fate(p_job_id bigint, p_run_lease bigint) returns text
language sql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
    select coalesce(min(e.fate), '')
    from (
        select case when f.state = 'failed' and f.reason = 'callback_timeout' then 'expired' else f.state end as fate
        from jobs_finished as f
        where f.job_id = p_job_id and f.run_lease = p_run_lease
        union all
        select case when x.reason = 'callback_timeout' then 'expired' else 'failed' end
        from jobs_dead as x
        where x.job_id = p_job_id and x.run_lease = p_run_lease
        union all
        select 'expired'
        from jobs_deferred as d
        where d.job_id = p_job_id and d.run_lease = p_run_lease and d.errors -> -1 ->> 'type' = 'CallbackTimeout'
        union all
        select 'retried'
        from jobs_returned as r
        where r.job_id = p_job_id and r.run_lease = p_run_lease and r.attempt = 0
    ) as e
$$;
