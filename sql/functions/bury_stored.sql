-- bury_stored(id, reason) -> whether it held the job: the part of move_to_dead for deferred and returned jobs, and for failed and
-- cancelled ones of the history. Guard, locks: the job's row. Errors: none.
create or replace function {schema}.bury_stored(p_job_id bigint, p_reason text) returns boolean
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_buried boolean;
begin
    with deferred as (
        delete from jobs_deferred where job_id = p_job_id
        returning job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
            tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress
    ),
    returned as (
        delete from jobs_returned where job_id = p_job_id
        returning job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
            tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress
    ),
    ended as (
        delete from jobs_finished where job_id = p_job_id and state in ('failed', 'cancelled')
        returning job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
            tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress
    ),
    taken as (select * from deferred union all select * from returned union all select * from ended)
    select bury(
        row(
            t.job_id, t.queue, t.priority, t.kind, t.args, t.attempt, t.max_attempts, t.run_lease, t.run_at,
            t.created_at, t.metadata, t.tags, t.ordering_key, t.errors, t.snoozes, t.deadline_s, t.unique_key,
            t.unique_states, t.progress)::body,
        p_reason)
    into v_buried
    from taken as t;
    return coalesce(v_buried, false);
end
$$;
