-- resume_queue(queue) -> nothing: claims take the queue up again, at once where a dispatcher waits for it.
-- Guard: none. Locks: the queue's row. Errors: none.
create or replace function {schema}.resume_queue(p_queue text) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    update queues set paused_at = null where queue = p_queue and paused_at is not null;
    if found then
        perform notify_waiters(array[p_queue]);
    end if;
end
$$;
