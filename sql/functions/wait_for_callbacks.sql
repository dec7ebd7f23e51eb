-- wait_for_callbacks(json array) -> (item, status, number, payload, why): attempts whose handlers begin to wait for their callbacks, or
-- ask whether they may go on. status: waiting (from now on, or still); answered (payload is the answer, the same each time until a
-- newer callback is registered or the attempt ends: a lost reply is asked for again); refused (it is not the attempt's newest
-- callback); stale (the attempt has ended; why: attempt_fate); busy (held by another session: say it again); invalid (not to be
-- understood); left (of an item that is gone: the handler waits no more, and runs; an answer that had come stays).
-- Items: {slot, receipt_id, nonce, index, job_id, run_lease, callback_id, gone?}.
-- Arrow: running -> waiting_external; an answered one stays running; one that is gone back to running. Guard: the lease row with the
-- callback's id. Locks: the lease rows of those that begin and those that are gone, by (receipt, index), SKIP LOCKED. Errors: AW002, AW006; class 22 for what is no number.
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
            w.item, w.gone, w.callback_id, l.receipt_id, l.idx, l.callback_no, l.callback_payload, coalesce(l.callback_id = w.callback_id, false) as is_newest,
            l.callback_answered_at is not null as is_answered, l.state = 'waiting_external' as is_waiting
        from want as w
        join leases as l
            on l.receipt_id = w.receipt_id and l.idx = w.idx and l.nonce = w.nonce and l.job_id = w.job_id
            and l.run_lease + 1 = w.run_lease and l.runtime_id is not null
    ),
    -- Only those that begin or are gone are written: asking again costs no lock.
    held as materialized (
        select p.item, p.gone, l.receipt_id, l.idx
        from present as p
        join leases as l on l.receipt_id = p.receipt_id and l.idx = p.idx
        where p.is_newest and not p.is_answered and p.is_waiting = p.gone
            and l.state = case when p.gone then 'waiting_external' else 'running' end and l.callback_id = p.callback_id
            and l.callback_answered_at is null and l.runtime_id is not null
        order by l.receipt_id, l.idx
        for update of l skip locked
    ),
    begun as (
        update leases as l
        set
            state = case when h.gone then 'running' else 'waiting_external' end,
            waiting_since = case when not h.gone then clock_timestamp() end
        from held as h
        where l.receipt_id = h.receipt_id and l.idx = h.idx
    )
    select
        t.item, s.status, case when p.is_newest then p.callback_no end,
        case when s.status = 'answered' then p.callback_payload end,
        case when s.status = 'stale' and not t.gone then attempt_fate(t.job_id, t.run_lease) end
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
                when t.gone and (p.is_answered or not p.is_waiting or h.item is not null) then 'left'
                when t.gone then 'busy'
                when p.is_answered then 'answered'
                when p.is_waiting or h.item is not null then 'waiting'
                else 'busy'
            end as status
    ) as s
    order by t.item;
end
$$;
