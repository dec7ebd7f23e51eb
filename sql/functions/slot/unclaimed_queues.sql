-- unclaimed_queues_<slot>() -> queue and lanes (bit p: priority p) that have a row no cursor has passed and no tombstone
-- covers. Steps from lane to lane by index, a few probes each, whatever the size of the slot. Errors: none.
create or replace function {schema}.unclaimed_queues_{slot}() returns table (queue text, lanes int)
language plpgsql volatile
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    buried boolean := exists (select from {schema}.tombstones_{slot});
begin
    for queue in select distinct l.queue from {schema}.lanes_of_slot_{slot}() as l where l.priority > 0 loop
        lanes := {schema}.peek_lanes_{slot}(queue);
        if lanes <> 0 and buried then
            lanes := {schema}.unburied_lanes_{slot}(queue, lanes);
        end if;
        if lanes <> 0 then
            return next;
        end if;
    end loop;
end
$$;
