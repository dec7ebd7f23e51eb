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
            v.code, v.delay_s, end_reason(v.outcome, coalesce(v.reason, v.error ->> 'reason')) as reason,
            cause_of_end(v.outcome, v.error, v.reason) as cause,
            row(
                b.job_id, b.queue, b.priority, b.kind, b.args, attempt_after(v.code, b.attempt), b.max_attempts,
                v.run_lease, b.run_at, b.created_at, b.metadata, b.tags, b.ordering_key,
                add_error(b.errors, v.error, b.attempt + 1), b.snoozes, b.deadline_s, b.unique_key, b.unique_states,
                b.progress)::body as body
        from verdict as v
        join body as b on b.receipt_id = v.receipt_id and b.idx = v.idx
        where v.status = 'done' and v.code <> 1
    ),
    settled as materialized (
        select settle_bodies(
            array_agg(p.body), array_agg(p.code), array_agg(p.delay_s), array_agg(p.reason), array_agg(p.cause)) as jobs
        from (select o.*, sum(pg_column_size(o.body)) over (rows unbounded preceding) / 33554432 as part from won as o)
            as p
        group by p.part  -- an array holds no more than 1 GB
    )
    select w.item, coalesce(v.status, 'stale'), case when v.status = 'done' then outcome_state(v.code) end
    from want as w
    cross join (select sum(s.jobs) from settled as s) as all_settled
    left join verdict as v on v.item = w.item;
end
$$;
