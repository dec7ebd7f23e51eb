-- slots_with(state) -> the slots, newest first, that hold any row of that state: all used ones for null, those with a lane
-- ahead of its cursor for available, those with a completion for completed.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.slots_with(p_state text) returns int[]
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    s record;
    v_any boolean;
    v_slots int[] := '{}';
begin
    for s in select r.slot, r.state from slots as r where r.state <> 'free' order by r.generation desc loop
        v_any := p_state is null;
        if p_state = 'available' and s.state in ('current', 'sealed') then
            v_any := exists (
                select from queues_of_slot(s.slot) as q where peek_lanes(s.slot, q) <> 0);
        elsif p_state = 'completed' then
            case s.slot
{each_slot}
            when {slot} then
                v_any := exists (select from completions_{slot});
{end_slot}
            end case;
        end if;
        if v_any then
            v_slots := v_slots || s.slot::int;
        end if;
    end loop;
    return v_slots;
end
$$;
