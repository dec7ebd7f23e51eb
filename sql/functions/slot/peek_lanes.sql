-- peek_lanes_<slot>(queue) -> bit p set: priority p has a row that its cursor has not passed. Exact but for
-- tombstones. Three index probes a priority, whatever the size of the slot. Errors: none.
create or replace function {schema}.peek_lanes_{slot}(p_queue text) returns int
language plpgsql volatile
as $$
begin
    return (
        select coalesce(sum(1 << lane.p), 0)
          from (values (1), (2), (3), (4)) as lane (p)
          left join lateral (
                select k.window_id, k.txid, k.job_id
                  from {schema}.cursors as k
                 where k.slot = {slot} and k.queue = p_queue and k.priority = lane.p
                 order by k.seq desc limit 1) as k on true
          left join {schema}.cursor_windows as w on w.window_id = k.window_id
         where exists (
                select from {schema}.jobs_ready_{slot} as r
                 where r.queue = p_queue and r.priority = lane.p
                   and (r.txid, r.job_id) > (
                        greatest(coalesce(k.txid, '0'), coalesce(pg_snapshot_xmax(w.prev), '0')),
                        case when k.txid >= pg_snapshot_xmax(w.prev) then k.job_id else -9223372036854775808 end))
            or (w.window_id is not null and exists (
                select from (select pg_snapshot_xip(w.prev) as x union all select pg_snapshot_xip(w.cur)) as late
                 cross join lateral (
                        select from {schema}.jobs_ready_{slot} as r
                         where r.queue = p_queue and r.priority = lane.p and r.txid = late.x
                           and (not pg_visible_in_snapshot(late.x, w.cur) or (r.txid, r.job_id) > (k.txid, k.job_id))
                         limit 1) as r)));
end
$$;
