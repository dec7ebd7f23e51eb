-- wait_for_callbacks(json array) -> (item, status, number, payload, why): attempts whose handlers begin to wait for their callbacks, or
-- ask whether they may go on. status: waiting (from now on, or still); answered (payload is the answer, the same each time until a
-- newer callback is registered or the attempt ends: a lost reply is asked for again); refused (it is not the attempt's newest
-- callback); stale (the attempt has ended; why: attempt_fate); busy (held by another session: say it again); invalid (not to be
-- understood).
-- Items: {slot, receipt_id, nonce, index, job_id, run_lease, callback_id}.
-- Arrow: running -> waiting_external; an answered one stays running. Guard: the lease row with the callback's id.
-- Locks: the lease rows of those that begin, by (receipt, index), SKIP LOCKED. Errors: AW002, AW006; class 22 for what is no number.
create or replace function {schema}.wait_for_callbacks(p_items json)
returns table(item int, status text, number int, payload json, why text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    perform require_read_committed('wait_for_callbacks');
    return query
    with told as materialized (select t.* from attempts_told(p_items) as t),
    want as materialized (select t.* from told as t where t.sound and t.turn = 1),
    present as materialized (
        select
            w.item, l.receipt_id, l.idx, l.callback_no, l.callback_payload, coalesce(l.callback_id = w.callback_id, false) as is_newest,
            l.callback_answered_at is not null as is_answered, l.state = 'waiting_external' as is_waiting
        from want as w
        join leases as l
            on l.receipt_id = w.receipt_id and l.idx = w.idx and l.nonce = w.nonce and l.job_id = w.job_id
            and l.run_lease + 1 = w.run_lease and l.runtime_id is not null
    ),
    -- Only those that begin are written: asking again costs no lock.
    held as materialized (
        select p.item, l.receipt_id, l.idx
        from present as p
        join leases as l on l.receipt_id = p.receipt_id and l.idx = p.idx
        where p.is_newest and not p.is_answered and not p.is_waiting
            and l.state = 'running' and l.callback_answered_at is null and l.runtime_id is not null
        order by l.receipt_id, l.idx
        for update of l skip locked
    ),
    begun as (
        update leases as l
        set state = 'waiting_external', waiting_since = clock_timestamp()
        from held as h
        where l.receipt_id = h.receipt_id and l.idx = h.idx
    )
    select
        t.item, s.status, case when p.is_newest then p.callback_no end,
        case when s.status = 'answered' then p.callback_payload end,
        case when s.status = 'stale' then attempt_fate(t.job_id, t.run_lease) end
    from told as t
    left join present as p on p.item = t.item
    left join held as h on h.item = t.item
    cross join lateral (
        select
            case
                when not t.sound then 'invalid'
                when t.turn > 1 then 'busy'
                when p.item is null then 'stale'
                when not p.is_newest then 'refused'
                when p.is_answered then 'answered'
                when p.is_waiting or h.item is not null then 'waiting'
                else 'busy'
            end as status
    ) as s
    order by t.item;
end
$$;
