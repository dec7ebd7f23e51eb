-- finish_{slot}(arrays, one entry per attempt) -> (item, status, state). The attempts' ends within slot {slot}.
-- Arrow: running -> completed | retryable | scheduled | failed | cancelled | available.
-- Guard: the attempt's bit, by close_bits_{slot}; job_id and run_lease must be the attempt's too.
-- Locks: receipt rows in order of id, skipping those held elsewhere. Errors: none of its own.
--
-- An attempt is ruled on by its body before its bit is set: bodies never change, and the bit decides who wins.
create or replace function {schema}.finish_{slot}(
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
        select w.*, 1::bigint << w.idx as bit
        from unnest(p_items, p_receipts, p_nonces, p_indexes, p_job_ids, p_leases, p_outcomes, p_delays, p_errors,
            p_reasons)
            as w(item, receipt_id, nonce, idx, job_id, run_lease, outcome, delay_s, error, reason)
    ),
    asked as (
        select array_agg(a.receipt_id) as receipts, array_agg(a.mask) as masks
        from (select w.receipt_id, bit_or(w.bit) as mask from want as w group by w.receipt_id) as a
    ),
    body as materialized (
        select b.* from asked as a cross join lateral bodies_{slot}(a.receipts, a.masks) as b
    ),
    ruled as materialized (
        select w.*, rule_outcome(w.outcome, b.attempt + 1, b.max_attempts) as code
        from want as w
        join body as b
            on b.receipt_id = w.receipt_id and b.idx = w.idx and b.job_id = w.job_id
            and b.run_lease + 1 = w.run_lease
    ),
    shut as materialized (
        select g.code, c.receipt_id, c.done, c.busy
        from (
            select r.code, array_agg(r.receipt_id) as receipts, array_agg(r.nonce) as nonces, array_agg(r.bit) as masks
            from ruled as r
            group by r.code
        ) as g
        cross join lateral close_bits_{slot}(g.receipts, g.nonces, g.masks, g.code) as c
    ),
    verdict as materialized (
        select
            r.*,
            case when s.done & r.bit <> 0 then 'done' when s.busy & r.bit <> 0 then 'busy' else 'stale' end as status
        from ruled as r
        left join shut as s on s.code = r.code and s.receipt_id = r.receipt_id
    ),
    won as materialized (
        select
            v.code, v.delay_s, v.reason, v.outcome,
            b.job_id, b.queue, b.priority, b.kind, b.args, attempt_after(v.code, b.attempt) as attempt, b.max_attempts,
            v.run_lease, b.run_at, b.created_at, b.metadata, b.tags, b.ordering_key,
            add_error(b.errors, v.error, b.attempt + 1) as errors, b.snoozes, b.deadline_s, b.unique_key,
            b.unique_states, b.progress
        from verdict as v
        join body as b on b.receipt_id = v.receipt_id and b.idx = v.idx
        where v.status = 'done' and v.code <> 1
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
        where o.code in (4, 5)
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
        w.item, coalesce(v.status, 'stale'), case when v.status = 'done' then outcome_state(v.code) end
    from want as w
    left join verdict as v on v.item = w.item;
end
$$;
