-- mark_drained(queue, slots, generations, long_sealed, masks) -> nothing: claims pass by the long sealed slots in which a
-- queue has nothing left, until the sweep finds late rows there and removes the mark. Two claims never wait for each
-- other's mark (they name queues in orders of their own): one writes, the other leaves it. Locks: lane 0 (try). Errors: none.
create or replace function {schema}.mark_drained(
    p_queue text, p_slots int[], p_generations bigint[], p_long_sealed boolean[], p_masks int[]) returns void
language plpgsql volatile
as $$
begin
    if not exists (
            select from unnest(p_long_sealed, p_masks) as u (long_sealed, mask) where u.long_sealed and u.mask = 0)
        or not {schema}.try_lane_lock(p_queue, 0) then
        return;
    end if;
    insert into {schema}.drained_lanes (slot, generation, queue)
    select u.slot, u.generation, p_queue
      from unnest(p_slots, p_generations, p_long_sealed, p_masks) as u (slot, generation, long_sealed, mask)
     where u.long_sealed and u.mask = 0
    on conflict do nothing;
end
$$;
