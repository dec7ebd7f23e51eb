-- peek_lanes_<slot>(queue) -> bit p set: priority p has a row that its cursor has not passed. Exact but for
-- tombstones. A few index probes a priority, whatever the size of the slot. Errors: none.
create or replace function {schema}.peek_lanes_{slot}(p_queue text) returns int
language plpgsql volatile
as $$
declare
    ahead int;
    unsure int;
begin
    select sum(case when exists (
                    select from {schema}.jobs_ready_{slot} as r
                     where hashtextextended(r.queue, r.priority) = hashtextextended(p_queue, lane.p)
                       and r.queue = p_queue and r.priority = lane.p
                       and (r.txid, r.job_id) > (
                            greatest(k.txid, k.beyond, '0'),
                            case when k.txid >= k.beyond then k.job_id else -9223372036854775808 end))
                then 1 << lane.p else 0 end),
           coalesce(bit_or(case when k.late then 1 << lane.p end), 0)
      into ahead, unsure
      from (values (1), (2), (3), (4)) as lane (p)
      left join lateral (
            select k.txid, k.job_id, pg_snapshot_xmax(k.prev) as beyond,
                   -- Of the transactions open when the snapshots were taken: one has ended that cur does not show, or that
                   -- the cursor has not passed. Who is still open, as a snapshot held for hours is, has nothing to show.
                   exists (
                        select from (select pg_snapshot_xip(k.prev) as x union all select pg_snapshot_xip(k.cur)) as o
                         where pg_visible_in_snapshot(o.x, pg_current_snapshot())
                           and (o.x >= k.txid or not pg_visible_in_snapshot(o.x, k.cur))) as late
              from {schema}.newest_cursor_{slot}(p_queue, lane.p) as k
             where k.prev is not null) as k on true;
    if unsure & ~ahead = 0 then
        return ahead;
    end if;
    -- transactions that were open when a snapshot was taken have ended: look for rows of just those
    return ahead | (
        select coalesce(bit_or(1 << lane.p), 0)
          from (values (1), (2), (3), (4)) as lane (p)
         cross join lateral {schema}.newest_cursor_{slot}(p_queue, lane.p) as k
         where unsure & ~ahead & (1 << lane.p) <> 0
           and exists (
                select from (select pg_snapshot_xip(k.prev) as x union select pg_snapshot_xip(k.cur)) as late
                 cross join lateral (
                        select from {schema}.jobs_ready_{slot} as r
                         where hashtextextended(r.queue, r.priority) = hashtextextended(p_queue, lane.p)
                       and r.queue = p_queue and r.priority = lane.p and r.txid = late.x
                           and (not pg_visible_in_snapshot(late.x, k.cur) or (r.txid, r.job_id) > (k.txid, k.job_id))
                         limit 1) as r));
end
$$;
