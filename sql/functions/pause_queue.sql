-- pause_queue(queue) -> nothing: claims leave the queue alone from now on. What runs goes on, what falls due is promoted.
-- Guard: none. Locks: the queue's row. Errors: AW001.
create or replace function {schema}.pause_queue(p_queue text) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if p_queue is null or length(p_queue) not between 1 and 200 then
        perform refuse_request('', 'queue: must have 1 to 200 characters');
    end if;
    insert into queues as q (queue, paused_at)
    values (p_queue, clock_timestamp())
    on conflict (queue) do update set paused_at = coalesce(q.paused_at, excluded.paused_at);
end
$$;
