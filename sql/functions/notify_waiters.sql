-- notify_waiters(queues) -> nothing: wakes the dispatchers if one waits for any of these queues.
-- Guard: none. Locks: none. Errors: none. Belongs into the transaction that loaded the jobs by COPY.
create or replace function {schema}.notify_waiters(p_queues text[]) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if exists (select from queue_waiters as w where w.queue = any(p_queues) and w.until > clock_timestamp()) then
        perform pg_notify('awa_pool', '');
    end if;
end
$$;
