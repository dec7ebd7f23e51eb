-- finish_leases(arrays, one entry per attempt) -> (item, status, state). The ends of attempts that were moved out of the ring.
-- Arrow: running | waiting_external -> completed | retryable | scheduled | failed | cancelled | available.
-- One that is parked has no attempt to end any more.
-- Guard: the lease row, with nonce, job_id, run_lease and a runtime. Locks: lease rows in order, skipping those held elsewhere.
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
            and l.run_lease + 1 = w.run_lease and l.runtime_id is not null
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
        where l.runtime_id is not null
        order by l.receipt_id, l.idx
        for update of l skip locked
    ),
    freed as (
        delete from leases as l using held as h where l.receipt_id = h.receipt_id and l.idx = h.idx
    ),
    won as materialized (
        select
            h.item, h.code, h.delay_s, end_reason(h.outcome, coalesce(h.reason, h.error ->> 'reason')) as reason,
            cause_of_end(h.outcome, h.error, h.reason) as cause,
            row(
                h.job_id, h.queue, h.priority, h.kind, h.args, attempt_after(h.code, h.attempts_before),
                h.max_attempts, h.run_lease, h.run_at, h.created_at, h.metadata, h.tags, h.ordering_key,
                add_error(h.errors_before, h.error, h.attempts_before + 1), h.snoozes, h.deadline_s, h.unique_key,
                h.unique_states, h.progress)::body as body
        from held as h
    ),
    settled as materialized (
        select settle_bodies(
            array_agg(p.body), array_agg(p.code), array_agg(p.delay_s), array_agg(p.reason), array_agg(p.cause)) as jobs
        from (select o.*, sum(pg_column_size(o.body)) over (rows unbounded preceding) / 33554432 as part from won as o)
            as p
        group by p.part  -- an array holds no more than 1 GB
    )
    select
        w.item,
        case when o.item is not null then 'done' when p.item is not null then 'busy' else 'stale' end,
        case when o.item is not null then outcome_state(o.code) end
    from want as w
    cross join (select sum(s.jobs) from settled as s) as all_settled
    left join won as o on o.item = w.item
    left join present as p on p.item = w.item;
end
$$;
