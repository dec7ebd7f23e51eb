-- lanes_of_slot_<slot>() -> queue and priority of every lane with rows in the slot, in no order anyone may rely on. One index
-- step a lane, whatever the size of the slot. Negative priorities are claimed already. Errors: none.
--
-- Steps by the lanes' numbers (see the index jobs_ready_lane): of two lanes with one number, which takes 64 equal bits,
-- only one would be named.
create or replace function {schema}.lanes_of_slot_{slot}() returns table (queue text, priority int)
language plpgsql stable
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    v_lane bigint;
begin
    select hashtextextended(r.queue, r.priority), r.queue, r.priority into v_lane, queue, priority
      from {schema}.jobs_ready_{slot} as r order by hashtextextended(r.queue, r.priority) limit 1;
    while found loop
        return next;
        select hashtextextended(r.queue, r.priority), r.queue, r.priority into v_lane, queue, priority
          from {schema}.jobs_ready_{slot} as r where hashtextextended(r.queue, r.priority) > v_lane
         order by hashtextextended(r.queue, r.priority) limit 1;
    end loop;
end
$$;
