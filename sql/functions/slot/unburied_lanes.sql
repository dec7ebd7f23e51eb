-- unburied_lanes_<slot>(queue, lanes) -> those of the lanes (bit p: priority p) that have an unclaimed row without a
-- tombstone. Reads the lane; called only where a slot has tombstones. Errors: none.
create or replace function {schema}.unburied_lanes_{slot}(p_queue text, p_lanes int) returns int
language plpgsql volatile
as $$
begin
    return (
        select coalesce(bit_or(1 << lane.p), 0)
          from (values (1), (2), (3), (4)) as lane (p)
          left join lateral {schema}.newest_cursor_{slot}(p_queue, lane.p) as k on true
         where p_lanes & (1 << lane.p) <> 0
           and exists (
                select from {schema}.jobs_ready_{slot} as r
                 where hashtextextended(r.queue, r.priority) = hashtextextended(p_queue, lane.p)
                   and r.queue = p_queue and r.priority = lane.p
                   and r.txid >= coalesce(pg_snapshot_xmin(k.prev), '0')
                   and (k.prev is null or not (
                        pg_visible_in_snapshot(r.txid, k.prev)
                        or (pg_visible_in_snapshot(r.txid, k.cur) and (r.txid, r.job_id) <= (k.txid, k.job_id))))
                   and not exists (
                        select from {schema}.tombstones_{slot} as t where t.job_id = r.job_id and t.txid = r.txid)));
end
$$;
