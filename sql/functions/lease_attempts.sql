-- lease_attempts(json array) -> (item, status): moves these running attempts out of the ring, so that whoever holds their row for
-- long holds up nobody else's finish: their handlers complete them in transactions of their own (complete_leased).
-- status: done (the lease row is there, now or before); stale (the attempt has ended); busy (held by another session, or named twice:
-- say it again); invalid (not to be understood).
-- Items: {slot, receipt_id, nonce, index, job_id, run_lease}.
-- Arrow: none (running stays running). Guard: the attempt's bit, or its lease row. Locks: receipts by slot and id, SKIP LOCKED; the new
-- rows; of lease rows none. Errors: AW002, AW006; class 22 for what is no number.
create or replace function {schema}.lease_attempts(p_items json) returns table(item int, status text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    g record;
    v_items int[];
    v_statuses text[];
    v_late int[] := '{}';  -- items whose bits were set before
begin
    perform require_read_committed('lease_attempts');
    for g in
        select
            t.slot, t.named, t.turn = 1 as is_first, array_agg(t.item) as items, array_agg(t.receipt_id) as receipts,
            array_agg(t.nonce) as nonces, array_agg(t.idx) as indexes, array_agg(t.job_id) as job_ids,
            array_agg(t.run_lease) as leases
        from attempts_told(p_items) as t
        group by t.slot, t.named, t.turn = 1
        order by t.slot
    loop
        if not g.named or not g.is_first then
            return query
            select i, case when g.named then 'busy' else 'invalid' end from unnest(g.items) as i;
            continue;
        end if;
        case g.slot
{each_slot}
        when {slot} then
            select array_agg(m.place), array_agg(m.status) into v_items, v_statuses
            from lease_attempts_{slot}(
                g.items, g.receipts, g.nonces, g.indexes, g.job_ids, g.leases,
                array_fill(null::float8, array[cardinality(g.items)]),
                array_fill(null::uuid, array[cardinality(g.items)])) as m;
{end_slot}
        end case;
        v_late := v_late || array(
            select r.item from unnest(v_items, v_statuses) as r(item, status) where r.status = 'stale');
        return query
        select r.item, r.status from unnest(v_items, v_statuses) as r(item, status) where r.status <> 'stale';
    end loop;
    if v_late = '{}' then
        return;
    end if;
    -- A statement of its own after the bits were found set: a move commits both together.
    return query
    select
        t.item,
        case
            when exists (
                select from leases as l
                where l.receipt_id = t.receipt_id and l.idx = t.idx and l.nonce = t.nonce and l.job_id = t.job_id
                    and l.run_lease + 1 = t.run_lease and l.runtime_id is not null)
                then 'done'
            else 'stale'
        end
    from attempts_told(p_items) as t
    where t.item = any (v_late);
end
$$;
