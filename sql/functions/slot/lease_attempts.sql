-- lease_attempts_<slot>(arrays, one entry per attempt, none named twice) -> (place, status, callback_id, number): moves open attempts of
-- the slot to leases, their bits set with outcome 8; from then on the lease row is the guard. Where a timeout is given the
-- attempt gets a callback, of that id if one is given. status: done; stale (the bit was set before, or the attempt is none of this slot); busy.
-- Guard: the attempt's bit, by close_bits_<slot>; job_id and run_lease must be the attempt's too.
-- Locks: receipts by id, SKIP LOCKED; the new rows. Errors: none.
create or replace function {schema}.lease_attempts_{slot}(
    p_places int[], p_receipts bigint[], p_nonces bigint[], p_indexes int[], p_job_ids bigint[], p_leases bigint[],
    p_timeouts float8[], p_ids uuid[], p_rules json[] default null, p_nths int[] default null
) returns table(place int, status text, callback_id uuid, number int)
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
        from unnest(p_places, p_receipts, p_nonces, p_indexes, p_job_ids, p_leases, p_timeouts, p_ids, p_rules, p_nths)
            as w(place, receipt_id, nonce, idx, job_id, run_lease, timeout_s, wanted_id, rules, nth)
    ),
    asked as (
        select array_agg(a.receipt_id) as receipts, array_agg(a.mask) as masks
        from (select w.receipt_id, bit_or(w.bit) as mask from want as w group by w.receipt_id) as a
    ),
    body as materialized (
        select b.* from asked as a cross join lateral bodies_{slot}(a.receipts, a.masks) as b
    ),
    sound as materialized (
        select w.*
        from want as w
        join body as b
            on b.receipt_id = w.receipt_id and b.idx = w.idx and b.job_id = w.job_id
            and b.run_lease + 1 = w.run_lease
    ),
    -- By receipt alone: each bit was asked for under one nonce.
    shut as materialized (
        select c.receipt_id, bit_or(c.done) as done, bit_or(c.busy) as busy
        from (
            select array_agg(s.receipt_id) as receipts, array_agg(s.nonce) as nonces, array_agg(s.bit) as masks
            from sound as s
        ) as g
        cross join lateral close_bits_{slot}(g.receipts, g.nonces, g.masks, 8) as c
        where g.receipts is not null
        group by c.receipt_id
    ),
    verdict as materialized (
        select
            s.*,
            case when c.done & s.bit <> 0 then 'done' when c.busy & s.bit <> 0 then 'busy' else 'stale' end as status
        from sound as s
        left join shut as c on c.receipt_id = s.receipt_id
    ),
    moved as (
        insert into leases (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, receipt_id, nonce, idx,
            slot, runtime_id, request_id, claimed_at, callback_id, callback_no, callback_until,
            callback_rules)
        select
            b.job_id, b.queue, b.priority, b.kind, b.args, b.attempt, b.max_attempts, b.run_lease, b.run_at,
            b.created_at, b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes, b.deadline_s, b.unique_key,
            b.unique_states, b.progress, b.receipt_id, r.nonce, b.idx, {slot}, r.runtime_id, r.request_id, r.claimed_at,
            case when v.timeout_s is not null then coalesce(v.wanted_id, gen_random_uuid()) end,
            answer_number(b.metadata) + case when v.timeout_s is null then 0 else coalesce(v.nth, 1) end,
            case when v.timeout_s is not null then due_after(v.timeout_s) end, v.rules
        from verdict as v
        join body as b on b.receipt_id = v.receipt_id and b.idx = v.idx
        cross join lateral (
            select r.* from receipts_{slot} as r where r.receipt_id = v.receipt_id offset 0) as r
        where v.status = 'done'
        returning receipt_id, idx, callback_id, callback_no
    )
    select w.place, coalesce(v.status, 'stale'), m.callback_id, case when m.callback_id is not null then m.callback_no end
    from want as w
    left join verdict as v on v.place = w.place
    left join moved as m on m.receipt_id = v.receipt_id and m.idx = v.idx and v.status = 'done';
end
$$;
