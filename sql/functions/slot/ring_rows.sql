-- ring_rows_{slot}() -> every row of slot {slot} with what happened to it: attempt identity (null: not claimed), the outcome
-- that closed its bit (null: open), whether it was taken out of its lane before a claim.
-- Guard: none. Locks: none. Errors: none.
--
-- Written to be unfolded into the caller's statement, so that its conditions reach the indexes: one SELECT, no SET clause.
create or replace function {schema}.ring_rows_{slot}()
returns table(
    job_id bigint, queue text, priority smallint, kind text, args json, attempt smallint, max_attempts smallint,
    run_lease bigint, run_at timestamptz, created_at timestamptz, metadata json, tags text[], ordering_key text,
    errors jsonb, snoozes int, deadline_s float8, unique_key bytea, unique_states smallint, progress json,
    txid xid8, buried boolean, receipt_id bigint, nonce bigint, idx int, runtime_id uuid, claimed_at timestamptz,
    outcome smallint, finalized_at timestamptz)
language sql stable
as $$
    select
        r.job_id, r.queue, abs(r.priority)::smallint, r.kind, r.args, r.attempt, r.max_attempts, r.run_lease, r.run_at,
        r.created_at, r.metadata, r.tags, r.ordering_key, r.errors, r.snoozes, r.deadline_s, r.unique_key,
        r.unique_states, r.progress, r.txid,
        t.is_buried is not null,
        c.receipt_id, c.nonce, c.idx, c.runtime_id, c.claimed_at, d.outcome, d.finalized_at
    from {schema}.jobs_ready_{slot} as r
    -- A join and not an EXISTS: as a filter of the scan it would count for each row of a block range, and the planner
    -- would read a whole other index instead.
    left join lateral (
        select true as is_buried
        from {schema}.tombstones_{slot} as t
        where t.job_id = r.job_id and t.txid = r.txid
        limit 1
    ) as t on true
    left join lateral (
        select c.receipt_id, c.nonce, c.runtime_id, c.claimed_at, array_position(c.job_ids, r.job_id) - 1 as idx
        from {schema}.receipts_{slot} as c
        where c.queue = r.queue and c.priority = r.priority and (c.to_txid, c.to_id) >= (r.txid, r.job_id)
            and (c.from_txid, c.from_id) <= (r.txid, r.job_id) and array_position(c.job_ids, r.job_id) is not null
        order by c.to_txid, c.to_id
        limit 1
    ) as c on true
    left join lateral (
        select d.outcome, d.finalized_at
        from {schema}.completions_{slot} as d
        where d.receipt_id = c.receipt_id and d.mask & (1::bigint << c.idx) <> 0
        limit 1
    ) as d on true
$$;
