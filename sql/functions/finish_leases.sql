-- finish_leases(arrays, one entry per attempt) -> (item, status, state). The ends of attempts that were moved out of the ring.
-- Arrow: running -> completed | retryable | scheduled | failed | cancelled | available.
-- Guard: the lease row, with nonce, job_id and run_lease. Locks: lease rows in order, skipping those held elsewhere.
-- Errors: none of its own. Has to be a statement of its own after the bits were found set: the move commits both together.
create or replace function {schema}.finish_leases(
    p_items int[], p_receipts bigint[], p_nonces bigint[], p_indexes int[], p_job_ids bigint[], p_leases bigint[],
    p_outcomes text[], p_delays float8[], p_errors jsonb[], p_reasons text[]
) returns table(item int, status text, state text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    with want as materialized (
        select w.*
        from unnest(p_items, p_receipts, p_nonces, p_indexes, p_job_ids, p_leases, p_outcomes, p_delays, p_errors,
            p_reasons)
            as w(item, receipt_id, nonce, idx, job_id, run_lease, outcome, delay_s, error, reason)
    ),
    present as materialized (
        select w.item
        from want as w
        join leases as l
            on l.receipt_id = w.receipt_id and l.idx = w.idx and l.nonce = w.nonce and l.job_id = w.job_id
            and l.run_lease + 1 = w.run_lease
    ),
    held as materialized (
        select
            w.item, w.outcome, w.delay_s, w.reason, l.receipt_id, l.idx,
            rule_outcome(w.outcome, l.attempt + 1, l.max_attempts) as code,
            l.job_id, l.queue, l.priority, l.kind, l.args, l.attempt as attempts_before, l.max_attempts,
            w.run_lease, l.run_at, l.created_at, l.metadata, l.tags, l.ordering_key, l.errors as errors_before,
            w.error, l.snoozes, l.deadline_s, l.unique_key, l.unique_states, l.progress
        from want as w
        join leases as l
            on l.receipt_id = w.receipt_id and l.idx = w.idx and l.nonce = w.nonce and l.job_id = w.job_id
            and l.run_lease + 1 = w.run_lease
        where l.state = 'running'
        order by l.receipt_id, l.idx
        for update of l skip locked
    ),
    freed as (
        delete from leases as l using held as h where l.receipt_id = h.receipt_id and l.idx = h.idx
    ),
    won as materialized (
        select
            h.*, attempt_after(h.code, h.attempts_before) as attempt,
            add_error(h.errors_before, h.error, h.attempts_before + 1) as errors
        from held as h
    ),
    later as (
        insert into jobs_deferred (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, state)
        select
            o.job_id, o.queue, o.priority, o.kind, o.args, o.attempt, o.max_attempts, o.run_lease,
            due_after(coalesce(o.delay_s, retry_delay_s(o.attempt))), o.created_at, o.metadata, o.tags,
            o.ordering_key, o.errors, o.snoozes + (o.code = 3 and o.snoozes < 2147483647)::int,
            o.deadline_s, o.unique_key, o.unique_states,
            o.progress, outcome_state(o.code)
        from won as o
        where o.code in (2, 3, 7)
    ),
    ended as (
        insert into jobs_finished (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, state, reason, finalized_at)
        select
            o.job_id, o.queue, o.priority, o.kind, o.args, o.attempt, o.max_attempts, o.run_lease, o.run_at,
            o.created_at, o.metadata, o.tags, o.ordering_key, o.errors, o.snoozes, o.deadline_s, o.unique_key,
            o.unique_states, o.progress, outcome_state(o.code), end_reason(o.outcome, o.reason), clock_timestamp()
        from won as o
        where o.code in (1, 4, 5)
    ),
    back as (
        insert into jobs_returned (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress)
        select
            o.job_id, o.queue, o.priority, o.kind, o.args, o.attempt, o.max_attempts, o.run_lease, o.run_at,
            o.created_at, o.metadata, o.tags, o.ordering_key, o.errors, o.snoozes, o.deadline_s, o.unique_key,
            o.unique_states, o.progress
        from won as o
        where o.code = 6
    )
    select
        w.item,
        case when o.item is not null then 'done' when p.item is not null then 'busy' else 'stale' end,
        case when o.item is not null then outcome_state(o.code) end
    from want as w
    left join won as o on o.item = w.item
    left join present as p on p.item = w.item;
end
$$;
