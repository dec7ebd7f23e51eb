-- settle_ended(bodies, codes, reasons) -> nothing. The part of settle_bodies for jobs that have ended: failed ones go to
-- jobs_dead unless their queue was told not to keep any, everything else to jobs_finished.
-- Arrow, guard, locks, errors: as settle_bodies.
create or replace function {schema}.settle_ended(p_bodies {schema}.body[], p_codes int[], p_reasons text[]) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    with ended as materialized (
        select b.*, b.code = 4 and coalesce(q.dlq, true) as dead, clock_timestamp() as at
        from rows from (unnest(p_bodies), unnest(p_codes), unnest(p_reasons))
            as b(job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata,
                tags, ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, code, reason)
        left join queues as q on q.queue = b.queue
        where b.code in (1, 4, 5)
    ),
    dead as (
        insert into jobs_dead (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, state, reason, finalized_at)
        select
            e.job_id, e.queue, e.priority, e.kind, e.args, e.attempt, e.max_attempts, e.run_lease, e.run_at,
            e.created_at, e.metadata, e.tags, e.ordering_key, e.errors, e.snoozes, e.deadline_s, e.unique_key,
            e.unique_states, e.progress, 'failed', e.reason, e.at
        from ended as e
        where e.dead
        on conflict (job_id) do nothing
    )
    insert into jobs_finished (
        job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
        ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, state, reason, finalized_at)
    select
        e.job_id, e.queue, e.priority, e.kind, e.args, e.attempt, e.max_attempts, e.run_lease, e.run_at,
        e.created_at, e.metadata, e.tags, e.ordering_key, e.errors, e.snoozes, e.deadline_s, e.unique_key,
        e.unique_states, case when e.code <> 1 then e.progress end, outcome_state(e.code), e.reason, e.at
    from ended as e
    where not e.dead
    on conflict (job_id) do nothing;
end
$$;
