-- unload_slot(slot, limit) -> unclaimed jobs moved from the slot to jobs_returned, lane by lane.
-- Locks: lanes (try). Errors: AW003 for a cursor from the future.
create or replace function {schema}.unload_slot(p_slot int, p_limit int) returns int
language plpgsql volatile
as $$
declare
    u record;
    v_count int;
    v_moved int := 0;
begin
    for u in execute format('select * from {schema}.unclaimed_queues_%s()', p_slot) loop
        for p in 1 .. 4 loop
            exit when v_moved >= p_limit;
            continue when u.lanes & (1 << p) = 0 or not {schema}.try_lane_lock(u.queue, p);
            execute format('select {schema}.unload_lane_%s($1, $2, $3)', p_slot)
               into v_count using u.queue, p, p_limit - v_moved;
            v_moved := v_moved + v_count;
        end loop;
    end loop;
    return v_moved;
end
$$;
