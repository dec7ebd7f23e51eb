-- resume_queue(queue, known) -> nothing: claims take the queue up again, at once where a dispatcher waits for it.
-- A name that nothing knows is refused, unless the caller vouches for it.
-- Guard: none. Locks: the queue's row. Errors: AW001.
create or replace function {schema}.resume_queue(p_queue text, p_known boolean default false) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if not p_known then
        perform require_known_queue(p_queue);
    end if;
    update queues set paused_at = null where queue = p_queue and paused_at is not null;
    if found then
        perform forget_queue(p_queue);
        perform notify_waiters(array[p_queue]);
    end if;
end
$$;
