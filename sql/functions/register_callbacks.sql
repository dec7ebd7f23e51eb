-- register_callbacks(json array) -> (item, status, callback_id, number): a callback for each of these running attempts, in place of an
-- earlier one, whose id is refused from then on. The attempt moves to leases, unless it is there. number: 1 for the first, and on
-- from the one whose answer the job carries; what was asked for in vain is counted.
-- status: done; stale (the attempt has ended); waiting (it waits for its callback, and `over` does not name that one: there is no other); busy (held by another session: say it
-- again); invalid (not to be understood).
-- Items: {slot, receipt_id, nonce, index, job_id, run_lease, timeout_s, wanted_id?, rules?, over?, nth?}; over: the callback that its handler has
-- waited for and waits for no more, so that a request that comes late replaces none that is waited for; rules: as rules_fit; timeout_s: 0.01 s to 365 days. wanted_id: the id
-- that it is to have, a random one of the caller's; saying the same again changes nothing and is answered as before. nth counts the
-- callbacks that the attempt has asked for: one with a newer one there changes nothing, and is answered as registered and replaced.
-- Arrow: none (running stays running); waiting_external -> running where it replaces the callback of a wait that was given up. Guard: the attempt's bit, or its lease row.
-- Locks: receipts by slot and id, then leases by (receipt, index); skip locked. Errors: AW002; class 22 for what is no number.
create or replace function {schema}.register_callbacks(p_items json)
returns table(item int, status text, callback_id uuid, number int)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    a record;  -- what was asked, sound and once each; `fresh`: of attempts that are still in the ring, as it seems
    v record;
    v_items int[];
    v_statuses text[];
    v_ids uuid[];
    v_numbers int[];
    v_done int[] := '{}';
    v_busy int[] := '{}';
begin
    perform require_read_committed('register_callbacks');
    select
        array_agg(t.item) filter (where t.sound and t.turn = 1) as items,
        array_agg(t.item) filter (
            where t.sound and t.turn = 1
                and not exists (select from leases as l where l.receipt_id = t.receipt_id and l.idx = t.idx)) as fresh,
        array_agg(t.item) filter (where t.sound and t.turn > 1) as repeats,
        array_agg(t.item) filter (where not t.sound) as flawed
    into a
    from attempts_told(p_items) as t;
    return query select i, 'invalid', null::uuid, null::int from unnest(a.flawed) as i;
    return query select i, 'busy', null::uuid, null::int from unnest(a.repeats) as i;
    for v in
        select
            t.slot, array_agg(t.item) as items, array_agg(t.receipt_id) as receipts, array_agg(t.nonce) as nonces,
            array_agg(t.idx) as indexes, array_agg(t.job_id) as job_ids, array_agg(t.run_lease) as leases,
            array_agg(t.timeout_s) as timeouts, array_agg(t.wanted_id) as ids, array_agg(t.rules) as rules, array_agg(t.nth) as nths
        from attempts_told(p_items) as t
        where a.fresh is not null and t.item = any (a.fresh)  -- the first callback of each of these attempts
        group by t.slot
        order by t.slot
    loop
        case v.slot
{each_slot}
        when {slot} then
            select array_agg(m.place), array_agg(m.status), array_agg(m.callback_id), array_agg(m.number)
            into v_items, v_statuses, v_ids, v_numbers
            from lease_attempts_{slot}(
                v.items, v.receipts, v.nonces, v.indexes, v.job_ids, v.leases, v.timeouts, v.ids, v.rules, v.nths) as m;
{end_slot}
        end case;
        v_done := v_done || array(
            select r.item from unnest(v_items, v_statuses) as r(item, status) where r.status = 'done');
        v_busy := v_busy || array(
            select r.item from unnest(v_items, v_statuses) as r(item, status) where r.status = 'busy');
        return query
        select r.item, r.status, r.id, r.number
        from unnest(v_items, v_statuses, v_ids, v_numbers) as r(item, status, id, number)
        where r.status <> 'stale';
    end loop;
    if a.items <@ (v_done || v_busy) then
        return;
    end if;
    -- A statement of its own after the bits were found set: a move commits both together.
    return query
    with want as materialized (
        select t.* from attempts_told(p_items) as t where t.item = any (a.items) and t.item <> all (v_done || v_busy)
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
            w.item, w.timeout_s, w.wanted_id, w.rules, l.receipt_id, l.idx, l.callback_no, n.no,
            -- said before, or left behind by a newer one
            coalesce(l.callback_id = w.wanted_id or n.no <= l.callback_no, false) as is_known,
            l.state = 'running' or coalesce(l.callback_id = w.over, false) as is_free
        from want as w
        join leases as l
            on l.receipt_id = w.receipt_id and l.idx = w.idx and l.nonce = w.nonce and l.job_id = w.job_id
            and l.run_lease + 1 = w.run_lease
        cross join lateral (select answer_number(l.metadata) + w.nth as no) as n
        where l.runtime_id is not null
        order by l.receipt_id, l.idx
        for update of l skip locked
    ),
    renewed as (
        update leases as l
        set
            state = 'running', waiting_since = null, callback_id = coalesce(h.wanted_id, gen_random_uuid()),
            callback_no = coalesce(h.no, greatest(l.callback_no, answer_number(l.metadata)) + 1),
            callback_until = due_after(h.timeout_s), callback_answered_at = null, callback_payload = null,
            callback_rules = h.rules
        from held as h
        where l.receipt_id = h.receipt_id and l.idx = h.idx and h.is_free and not h.is_known
        returning h.item, l.callback_id, l.callback_no
    )
    select
        w.item,
        case
            when r.item is not null or h.is_known then 'done'
            when h.item is not null then 'waiting'
            when p.item is not null then 'busy'
            else 'stale'
        end,
        coalesce(r.callback_id, case when h.is_known then h.wanted_id end),
        coalesce(r.callback_no, case when h.is_known then coalesce(h.no, h.callback_no) end)
    from want as w
    left join held as h on h.item = w.item
    left join renewed as r on r.item = w.item
    left join present as p on p.item = w.item;
end
$$;
