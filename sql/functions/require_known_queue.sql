-- require_known_queue(queue) -> nothing, or AW001 naming the queues there are: for what would succeed without any effect under a
-- misspelt name. Known is what has settings, jobs, history, or a dispatcher that waits for it.
-- Guard: none. Locks: none. Errors: AW001.
create or replace function {schema}.require_known_queue(p_queue text) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v_known text[];
begin
    if p_queue is null or length(p_queue) not between 1 and 200 then
        perform refuse_request('', 'queue: must have 1 to 200 characters');
    end if;
    if exists (select from queues as q where q.queue = p_queue)
        or exists (select from queue_waiters as w where w.queue = p_queue and w.until > clock_timestamp())
    then
        return;
    end if;
    v_known := array(select k from known_queues() as k);
    if p_queue <> all (v_known) then
        perform refuse_request('', format('queue: no job, setting or waiting pool knows %s; known %s', p_queue,
            coalesce('are ' || nullif(array_to_string(v_known[1:20], ', '), ''), 'is none')));
    end if;
end
$$;
