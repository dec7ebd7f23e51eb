-- pause_queue(queue, known) -> nothing: claims leave the queue alone from now on. What runs goes on, what falls due is promoted.
-- A name that nothing knows is refused, as it would pause nothing, unless the caller vouches for it.
-- Guard: none. Locks: the queue's row. Errors: AW001.
create or replace function {schema}.pause_queue(p_queue text, p_known boolean default false) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if not p_known or p_queue is null or length(p_queue) not between 1 and 200 then
        perform require_known_queue(p_queue);
    end if;
    insert into queues as q (queue, paused_at)
    values (p_queue, clock_timestamp())
    on conflict (queue) do update set paused_at = coalesce(q.paused_at, excluded.paused_at);
end
$$;
