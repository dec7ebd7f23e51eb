-- forget_queue(queue) -> nothing: a row of settings that says nothing any more goes, so that no list names the queue for ever.
-- Guard: it is not paused, and each setting is what it is without the row. Locks: the queue's row. Errors: none.
create or replace function {schema}.forget_queue(p_queue text) returns void
language sql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
    delete from queues as q
    where q.queue = p_queue and q.paused_at is null and q.deadline_s is null and q.dlq and q.dlq_retention_s is null;
$$;
