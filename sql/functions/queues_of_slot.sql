-- queues_of_slot(slot) -> the names of the queues that have rows in the slot, in order; one index step per lane.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.queues_of_slot(p_slot int) returns setof text
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
begin
    case p_slot
{each_slot}
    when {slot} then return query select distinct l.queue from lanes_of_slot_{slot}() as l order by l.queue;
{end_slot}
    end case;
end
$$;
