-- top_id(slot, state, high, queue) -> the highest id below `high` of a row in the slot that can be in that state (completed: a
-- claimed one whose bit is set; available: one that no cursor has passed), or null. Reads all receipts or all of the
-- backlog of the slot: for the jump over a long stretch of others only.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.top_id(p_slot int, p_state text, p_high bigint, p_queue text) returns bigint
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_top bigint;
begin
    case p_slot
{each_slot}
    when {slot} then
        if p_state = 'completed' then
            select max(i.job_id) into v_top
            from receipts_{slot} as c
            cross join lateral unnest(c.job_ids) with ordinality as i(job_id, place)
            where c.closed & (1::bigint << (i.place - 1)::int) <> 0 and i.job_id < p_high
                and (p_queue is null or c.queue = p_queue);
        else
            select max(u.job_id) into v_top
            from queues_of_slot({slot}) as q
            cross join lateral unclaimed_{slot}(q) as u
            where (p_queue is null or q = p_queue) and u.job_id < p_high;
        end if;
{end_slot}
    end case;
    return v_top;
end
$$;
