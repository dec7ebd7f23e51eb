-- wait_for_callbacks(json array) -> (item, status, number, payload): attempts whose handlers begin to wait for their callbacks, or ask
-- whether they may go on. status: waiting (from now on, or still); answered (payload is the answer, given this once: the callback is
-- spent); refused (it is not the attempt's newest callback, or is spent); stale (the attempt has ended); busy (held by another
-- session: say it again); invalid (not to be understood).
-- Items: {slot, receipt_id, nonce, index, job_id, run_lease, callback_id}.
-- Arrow: running -> waiting_external; an answered one is running. Guard: the lease row with the callback's id.
-- Locks: lease rows by (receipt, index), SKIP LOCKED. Errors: AW002, AW006; class 22 for what is no number.
create or replace function {schema}.wait_for_callbacks(p_items json)
returns table(item int, status text, number int, payload json)
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
        select w.item
        from want as w
        join leases as l
            on l.receipt_id = w.receipt_id and l.idx = w.idx and l.nonce = w.nonce and l.job_id = w.job_id
            and l.run_lease + 1 = w.run_lease and l.runtime_id is not null
    ),
    held as materialized (
        select
            w.item, l.receipt_id, l.idx, l.state, l.callback_no, l.callback_payload,
            coalesce(l.callback_id = w.callback_id, false) as is_newest, l.callback_answered_at is not null as is_answered
        from want as w
        join leases as l
            on l.receipt_id = w.receipt_id and l.idx = w.idx and l.nonce = w.nonce and l.job_id = w.job_id
            and l.run_lease + 1 = w.run_lease
        where l.runtime_id is not null
        order by l.receipt_id, l.idx
        for update of l skip locked
    ),
    taken as (
        update leases as l
        set callback_id = null, callback_until = null, callback_answered_at = null, callback_payload = null
        from held as h
        where l.receipt_id = h.receipt_id and l.idx = h.idx and h.is_newest and h.is_answered
    ),
    begun as (
        update leases as l
        set state = 'waiting_external', waiting_since = clock_timestamp()
        from held as h
        where l.receipt_id = h.receipt_id and l.idx = h.idx and h.is_newest and not h.is_answered and h.state = 'running'
    )
    select
        t.item,
        case
            when not t.sound then 'invalid'
            when t.turn > 1 then 'busy'
            when h.item is null then case when p.item is not null then 'busy' else 'stale' end
            when not h.is_newest then 'refused'
            when h.is_answered then 'answered'
            else 'waiting'
        end,
        case when h.is_newest then h.callback_no end,
        case when h.is_newest and h.is_answered then h.callback_payload end
    from told as t
    left join held as h on h.item = t.item
    left join present as p on p.item = t.item
    order by t.item;
end
$$;
