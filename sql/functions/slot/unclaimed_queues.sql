-- unclaimed_queues_<slot>() -> queue and lanes (bit p: priority p) that have a row no cursor has passed and no tombstone
-- covers. Steps from queue to queue by index, a few probes each, whatever the size of the slot. Errors: none.
create or replace function {schema}.unclaimed_queues_{slot}() returns table (queue text, lanes int)
language plpgsql volatile
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    buried boolean := exists (select from {schema}.tombstones_{slot});
    name text := (select r.queue from {schema}.jobs_ready_{slot} as r order by r.queue limit 1);
begin
    while name is not null loop
        lanes := {schema}.peek_lanes_{slot}(name);
        if lanes <> 0 and buried then
            lanes := {schema}.unburied_lanes_{slot}(name, lanes);
        end if;
        if lanes <> 0 then
            queue := name;
            return next;
        end if;
        name := (select r.queue from {schema}.jobs_ready_{slot} as r where r.queue > name order by r.queue limit 1);
    end loop;
end
$$;
