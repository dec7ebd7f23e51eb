-- queues_of_slot(slot) -> the names of the queues that have rows in the slot, one index step per name.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.queues_of_slot(p_slot int) returns setof text
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_name text collate "C" := '';
begin
    loop
        case p_slot
{each_slot}
        when {slot} then
            select r.queue into v_name from jobs_ready_{slot} as r where r.queue > v_name order by r.queue limit 1;
{end_slot}
        end case;
        exit when not found;
        return next v_name;
    end loop;
end
$$;
