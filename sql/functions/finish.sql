-- finish(json array) -> (item, status, state): ends attempts, whatever their outcome. status: done; stale (the attempt had
-- ended before); busy (held by another session: say it again); invalid (not to be understood: said of this item alone).
-- Items: {slot, receipt_id, nonce, index, job_id, run_lease, outcome, delay_s?, error?, reason?, progress?}; progress: an object, the
-- attempt's last word, kept with the job; owned?: true where the handler may have completed the job in a transaction of its own: the
-- state of a stale one is 'completed' if so.
-- Arrow: running -> completed | retryable | scheduled | failed | cancelled | available.
-- Guard: the attempt's bit, or its lease row. Locks: receipts by slot and id, then leases by (receipt, index); skip locked.
-- Errors: AW002, AW006.
create or replace function {schema}.finish(p_items json) returns table(item int, status text, state text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    v_owned boolean := strpos(p_items::text, '"owned"') > 0;
begin
    perform require_read_committed('finish');
    if strpos(p_items::text, '"progress"') > 0 then
        begin
            perform keep_progress(p_items);
        exception
            when data_exception then
                null;  -- which item it is comes out below
        end;
    end if;
    return query
    with told as materialized (select e.* from parse_ends(p_items) as e),
    -- One call ends an attempt once: of items that name the same attempt the first counts.
    first as materialized (
        select distinct on (t.slot, t.receipt_id, t.idx) t.*
        from told as t
        where not t.fault
        order by t.slot, t.receipt_id, t.idx, t.item
    ),
    -- Another nonce for the same receipt cannot be told apart in one closing of bits: it waits for the next call.
    rival as (
        select f.item
        from first as f
        join (select slot, receipt_id, min(item) as lead from first group by slot, receipt_id) as l
            using (slot, receipt_id)
        join first as g on g.item = l.lead
        where f.nonce <> g.nonce
    ),
    ended as (
        select d.*
        from (
            select
                array_agg(f.item order by f.item) as items, array_agg(f.slot order by f.item) as slots,
                array_agg(f.receipt_id order by f.item) as receipts, array_agg(f.nonce order by f.item) as nonces,
                array_agg(f.idx order by f.item) as indexes, array_agg(f.job_id order by f.item) as job_ids,
                array_agg(f.run_lease order by f.item) as leases, array_agg(f.outcome order by f.item) as outcomes,
                array_agg(f.delay_s order by f.item) as delays, array_agg(f.error order by f.item) as errors,
                array_agg(f.reason order by f.item) as reasons
            from first as f
            where f.item not in (select r.item from rival as r)
        ) as a
        cross join lateral end_attempts(
            a.items, a.slots, a.receipts, a.nonces, a.indexes, a.job_ids, a.leases, a.outcomes, a.delays, a.errors,
            a.reasons) as d
        where a.items is not null
    )
    select
        t.item,
        case
            when t.fault then 'invalid'
            when e.item is not null then e.status
            when r.item is not null then 'busy'
            else 'stale'
        end,
        case
            when e.state is null and v_owned and p_items -> t.item ->> 'owned' = 'true'
                then completed_before(t.job_id, t.run_lease)
            else e.state
        end
    from told as t
    left join ended as e on e.item = t.item
    left join rival as r on r.item = t.item
    order by t.item;
end
$$;
