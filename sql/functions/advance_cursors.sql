-- advance_cursors(queue, slots) -> nothing: where a lane is used up, store a window that begins now, so that the next
-- probe does not walk over rows that were rolled back. Locks: lanes (try). Errors: none.
create or replace function {schema}.advance_cursors(p_queue text, p_slots int[]) returns void
language plpgsql volatile
as $$
declare
    s int;
    last pg_snapshot;
begin
    for p in 1 .. 4 loop
        continue when not {schema}.try_lane_lock(p_queue, p);
        foreach s in array p_slots loop
            -- after the lock: what another claim took meanwhile is behind its cursor, what came stays ahead
            continue when {schema}.peek_lanes(s, p_queue) & (1 << p) <> 0;
            -- by the slot's own function: over the parents it would lock all partitions, and wait for a prune of any slot
            execute format('select k.cur from {schema}.newest_cursor_%s($1, $2) as k', s) into last using p_queue, p;
            continue when pg_snapshot_xmax(last) >= pg_snapshot_xmax(pg_current_snapshot());
            perform {schema}.store_cursor(s, p_queue, p, coalesce(last, '1:1:'), {schema}.snapshot_now());
        end loop;
    end loop;
end
$$;
