-- newest_cursor_<slot>(queue, priority) -> the newest cursor of a lane with its window, or no row before the first claim; prev and cur
-- are null where a window is missing. Two probes, one after the other: as a join, a small table of windows was read whole.
-- Unfolds into the caller's statement. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.newest_cursor_{slot}(p_queue text, p_priority int)
returns table(window_id bigint, txid xid8, job_id bigint, prev pg_snapshot, cur pg_snapshot)
language sql stable
as $$
    select k.window_id, k.txid, k.job_id, w.prev, w.cur
    from (
        select c.window_id, c.txid, c.job_id
        from {schema}.cursors_{slot} as c
        where c.queue = p_queue and c.priority = p_priority
        order by c.seq desc
        limit 1
    ) as k
    left join lateral (
        select s.prev, s.cur
        from {schema}.cursor_windows_{slot} as s
        where s.window_id = k.window_id
        limit 1
    ) as w on true
$$;
