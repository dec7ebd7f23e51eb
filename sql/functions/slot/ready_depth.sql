-- ready_depth_{slot}(queue, cap) -> (available, oldest, estimated) of a queue in slot {slot}: counted up to the cap, beyond it
-- estimated from a sample of about a hundred pages.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.ready_depth_{slot}(p_queue text, p_cap int)
returns table(available bigint, oldest timestamptz, estimated boolean)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    v_share float8;
    v_sampled bigint;
begin
    select count(*), min(u.available_since) into available, oldest
    from (select n.available_since from unclaimed_{slot}(p_queue) as n limit p_cap) as u;
    estimated := available >= p_cap;
    if estimated then
        v_share := least(1.0, 100.0 * 8192 / greatest(pg_relation_size('jobs_ready_{slot}'::regclass), 8192));
        with lane as materialized (
            select p.priority, k.txid, k.job_id, k.prev, k.cur
            from (values (1), (2), (3), (4)) as p(priority)
            cross join lateral newest_cursor_{slot}(p_queue, p.priority) as k
        )
        select count(*) into v_sampled
        from jobs_ready_{slot} as r tablesample system (v_share * 100) repeatable (1)
        left join lane as c on c.priority = r.priority
        where r.queue = p_queue and r.priority > 0
            and (c.cur is null
                or not (pg_visible_in_snapshot(r.txid, c.prev)
                    or (pg_visible_in_snapshot(r.txid, c.cur) and (r.txid, r.job_id) <= (c.txid, c.job_id))));
        available := greatest(available, (v_sampled / v_share)::bigint);
    end if;
    return next;
end
$$;
