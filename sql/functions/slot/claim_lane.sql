-- claim_lane_<slot>(queue, priority, limit, max_bytes, chunk, runtime, request) -> a row per receipt; bytes is the
-- size of all args handed out. Arrow: available -> running. The caller holds the lane's lock.
-- Takes what the newest cursor has not passed, in (txid, job_id) order, oldest window first: rows visible in cur
-- and not in prev. When the window is used up, prev := cur and cur := now, once.
-- Guard: the cursor. Writes: receipts, a cursor, a window when it moved. Errors: AW003 for a cursor from the future.
create or replace function {schema}.claim_lane_{slot}(
    p_queue text, p_priority int, p_limit int, p_max_bytes bigint, p_chunk int, p_runtime uuid, p_request bigint
) returns table (
    receipt_id bigint, nonce bigint, job_ids bigint[], kinds text[], bodies text[], bytes bigint)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    v_lane bigint := hashtextextended(p_queue, p_priority);  -- the lane in the index; a rival of the same number is told by name
    c record;
    late xid8[];
    low_txid xid8;
    low_id bigint;
    got int;
    moved boolean := false;
    buried boolean;
begin
    select k.window_id, k.prev, k.cur, k.txid, k.job_id, e.buried into c
      from (select exists (select from {schema}.tombstones_{slot}) as buried) as e
      left join lateral {schema}.newest_cursor_{slot}(p_queue, p_priority) as k on true;
    buried := c.buried;
    if c.window_id is null then
        select null::bigint as window_id, '1:1:'::pg_snapshot as prev, {schema}.snapshot_now() as cur,
               '0'::xid8 as txid, 0::bigint as job_id into c;
        moved := true;
    elsif c.prev is null then
        return;  -- its window is lost: no other lane has to wait for that (see refuse_lost_window)
    elsif pg_snapshot_xmax(c.cur) > pg_snapshot_xmax(pg_current_snapshot()) then
        perform {schema}.refuse_future_cursor({slot}, p_queue);
    end if;
    loop
        late := '{}';
        if pg_snapshot_xmin(c.prev) < pg_snapshot_xmax(c.prev) then
            late := array(select x from pg_snapshot_xip(c.prev) as x
                           where x >= c.txid and pg_visible_in_snapshot(x, c.cur));
        end if;
        -- one row comparison as lower bound: with two, the index scan may start at the smaller
        low_txid := greatest(c.txid, pg_snapshot_xmax(c.prev));
        low_id := case when c.txid >= pg_snapshot_xmax(c.prev) then c.job_id else -9223372036854775808 end;
        return query
        with rows_in_order as (
            select u.txid, u.job_id, u.kind, u.args, u.attempt, u.run_lease, u.max_attempts, u.metadata, u.tags,
                   u.snoozes, u.deadline_s, u.progress, u.ordering_key, u.unique_key, u.unique_states,
                   sum(pg_column_size(u.args)) over w as size, row_number() over w as place
              from (
                (select r.* from unnest(late) as l (x)
                  cross join lateral (
                        select r.* from {schema}.jobs_ready_{slot} as r
                         where hashtextextended(r.queue, r.priority) = v_lane and r.queue = p_queue and r.priority = p_priority and r.txid = l.x
                           and (r.txid, r.job_id) > (c.txid, c.job_id)
                           and not (buried and exists (
                                select from {schema}.tombstones_{slot} as t where t.job_id = r.job_id and t.txid = r.txid))
                         order by r.job_id limit p_limit) as r
                  order by r.txid, r.job_id limit p_limit)
                union all
                (select r.* from {schema}.jobs_ready_{slot} as r
                  where hashtextextended(r.queue, r.priority) = v_lane and r.queue = p_queue and r.priority = p_priority
                    and (r.txid, r.job_id) > (low_txid, low_id)
                    and r.txid < pg_snapshot_xmax(c.cur)
                    and pg_visible_in_snapshot(r.txid, c.cur)
                    and not (buried and exists (
                        select from {schema}.tombstones_{slot} as t where t.job_id = r.job_id and t.txid = r.txid))
                  order by r.txid, r.job_id limit p_limit)) as u
            window w as (order by u.txid, u.job_id rows between unbounded preceding and current row)
             order by u.txid, u.job_id limit p_limit
        ), taken as materialized (
            select count(*)::int as n, max(r.size)::bigint as size, max(r.run_lease) as used_leases,
                   array_agg(r.job_id) as ids, array_agg(r.txid) as txids, array_agg(r.kind) as kinds,
                   array_agg(r.run_lease + 1) as leases,
                   array_agg(row(r.place, r.job_id, r.unique_key, r.unique_states)::{schema}.keyed_job)
                       filter (where r.unique_key is not null) as keyed,
                   array_agg(concat('[', r.job_id, ',', to_json(r.kind), ',', r.args, ',', r.attempt + 1, ',',
                        r.run_lease + 1, ',', r.max_attempts, ',',
                        case when r.snoozes = 0
                              and num_nonnulls(r.metadata, r.tags, r.deadline_s, r.progress, r.ordering_key) = 0
                             then 'null'
                             else {schema}.body_extra(r.metadata, r.tags, r.snoozes, r.deadline_s, r.progress,
                                                      r.ordering_key) end, ']')) as bodies
              from (select * from rows_in_order as o where o.place = 1 or o.size <= p_max_bytes order by o.place) as r
        ), piece as (
            select nextval('{schema_text}.receipt_id_seq') as receipt_id,
                   hashtextextended(gen_random_uuid()::text, 0) as nonce,
                   i.low, i.high
              from taken as t
             cross join lateral (
                    select i * p_chunk + 1 as low, least((i + 1) * p_chunk, t.n) as high
                      from generate_series(0, (t.n - 1) / p_chunk) as i
                     where late = '{}'
                    union all
                    -- a receipt of late rows keeps to one transaction, so that the range in which its bodies are
                    -- looked up never spans all that came between
                    select min(u.place)::int, max(u.place)::int
                      from (select r.place, r.block,
                                   (row_number() over (partition by r.block order by r.place) - 1) / p_chunk as part
                              from (select x.place,
                                           case when x.txid < pg_snapshot_xmax(c.prev) then x.txid end as block
                                      from unnest(t.txids) with ordinality as x (txid, place)) as r) as u
                     where late <> '{}'
                     group by u.block, u.part) as i
             where t.n > 0
        ), written as (
            insert into {schema}.receipts_{slot} (slot, receipt_id, nonce, queue, priority, from_txid, from_id,
                    to_txid, to_id, job_ids, leases, n, runtime_id, request_id, keyed, yields)
            select {slot}, p.receipt_id, p.nonce, p_queue, p_priority, t.txids[p.low], t.ids[p.low],
                   t.txids[p.high], t.ids[p.high], t.ids[p.low:p.high],
                   case when t.used_leases > 0 then t.leases[p.low:p.high] end, p.high - p.low + 1,
                   p_runtime, p_request,
                   case when t.keyed is not null then {schema}.key_bits(t.keyed, p.low, p.high) end,
                   case when t.keyed is not null
                        then {schema}.yield_keys(t.keyed, p.low, p.high, p_runtime is not null) end
              from piece as p, taken as t
        ), window_row as (
            insert into {schema}.cursor_windows_{slot} (slot, prev, cur)
            select {slot}, c.prev, c.cur from taken as t where moved and t.n > 0
            returning window_id
        ), cursor_row as (
            insert into {schema}.cursors_{slot} (slot, queue, priority, window_id, txid, job_id)
            select {slot}, p_queue, p_priority,
                   case when moved then (select w.window_id from window_row as w) else c.window_id end,
                   t.txids[t.n], t.ids[t.n]
              from taken as t where t.n > 0
        )
        select p.receipt_id, p.nonce, t.ids[p.low:p.high], t.kinds[p.low:p.high], t.bodies[p.low:p.high], t.size
          from piece as p, taken as t order by p.low;
        get diagnostics got = row_count;
        if got > 0 then
            return;
        end if;
        exit when moved;
        select c.window_id, c.cur as prev, {schema}.snapshot_now() as cur, '0'::xid8 as txid, 0::bigint as job_id
          into c;
        moved := true;
    end loop;
    -- Only dead or buried rows stood there: remember that, or every poll would walk over them again.
    perform {schema}.store_cursor({slot}, p_queue, p_priority, c.prev, c.cur);
end
$$;
