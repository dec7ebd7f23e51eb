-- retry_external(callback) -> (job_id, number, state): the job runs again from the top, now, with all attempts before it. An earlier
-- answer that it carries stays with it. Only while it waits.
-- Arrow: waiting_external -> available. Guard: the callback (held_callback). Locks: its lease row; keys, as key_pass.
-- Errors: AW002, AW008; AW007 when another job holds its unique key, 55P03 when that is about to be decided: nothing has changed.
create or replace function {schema}.retry_external(
    p_callback text, out job_id bigint, out number int, out state text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v leases := held_callback(p_callback, true);
begin
    perform refuse_duplicate(v.job_id, k.holder) from lease_keys(v, 'available') as k where k.blocked;
    perform leave_lease(v, 6, 0, v.metadata, null, 'retried_by_callback', 'callback');
    perform notify_waiters(array[v.queue]);
    perform pg_notify('awa_pool', format('callback %s retried', v.callback_id));
    job_id := v.job_id;
    number := v.callback_no;
    state := 'available';
end
$$;
