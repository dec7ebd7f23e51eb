-- unclaimed_{slot}(queue) -> (job_id, kind, priority, available_since) of the queue's rows in slot {slot} that no cursor has passed.
-- Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement, whose LIMIT bounds the reading.
create or replace function {schema}.unclaimed_{slot}(p_queue text)
returns table(job_id bigint, kind text, priority int, available_since timestamptz)
language sql stable
as $$
    select u.job_id, u.kind, p.priority, u.available_since
    from (values (1), (2), (3), (4)) as p(priority)
    left join lateral {schema}.newest_cursor_{slot}(p_queue, p.priority) as c on true
    cross join lateral (
        select r.txid, r.job_id, r.kind, greatest(r.run_at, r.created_at) as available_since
        from {schema}.jobs_ready_{slot} as r
        where hashtextextended(r.queue, r.priority) = hashtextextended(p_queue, p.priority)
            and r.queue = p_queue and r.priority = p.priority
            and (r.txid, r.job_id) > (
                greatest(coalesce(c.txid, '0'), coalesce(pg_snapshot_xmax(c.prev), '0')),
                case when c.txid >= pg_snapshot_xmax(c.prev) then c.job_id else -9223372036854775808 end)
        union all
        select r.txid, r.job_id, r.kind, greatest(r.run_at, r.created_at)
        from (
            select x from pg_snapshot_xip(c.prev) as x
            union
            select x from pg_snapshot_xip(c.cur) as x
        ) as late
        cross join lateral (
            select r.*
            from {schema}.jobs_ready_{slot} as r
            where hashtextextended(r.queue, r.priority) = hashtextextended(p_queue, p.priority)
            and r.queue = p_queue and r.priority = p.priority and r.txid = late.x
                and not (r.txid, r.job_id) > (
                    greatest(c.txid, pg_snapshot_xmax(c.prev)),
                    case when c.txid >= pg_snapshot_xmax(c.prev) then c.job_id else -9223372036854775808 end)
                and not pg_visible_in_snapshot(r.txid, c.prev)
                and (not pg_visible_in_snapshot(r.txid, c.cur) or (r.txid, r.job_id) > (c.txid, c.job_id))
        ) as r
    ) as u
    where not exists (select from {schema}.tombstones_{slot})  -- asked once, and nearly always the answer
        or not exists (select from {schema}.tombstones_{slot} as t where t.job_id = u.job_id and t.txid = u.txid)
$$;
