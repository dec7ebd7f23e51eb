-- fail_external(callback, error) -> (job_id, number, state): fails the job for good, with that error and the reason callback_failed;
-- it goes to the dead letter queue where its queue keeps one. A handler that is alive can no longer change it.
-- Arrow: waiting_external | running -> failed. Guard: the callback (held_callback). Locks: its lease row; keys, as key_pass.
-- Errors: AW001, AW002, AW008.
create or replace function {schema}.fail_external(
    p_callback text, p_error text, out job_id bigint, out number int, out state text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v leases;
begin
    if coalesce(p_error, '') = '' then
        perform refuse_request('', 'error: say what went wrong');
    end if;
    v := held_callback(p_callback, false);
    perform leave_lease(
        v, 4, v.attempt + 1, v.metadata,
        jsonb_build_object('error', clip_text(p_error, 4096), 'type', 'CallbackFailed', 'callback', v.callback_no),
        'callback_failed', 'callback');
    perform pg_notify('awa_pool', format('callback %s failed', v.callback_id));
    job_id := v.job_id;
    number := v.callback_no;
    state := 'failed';
end
$$;
