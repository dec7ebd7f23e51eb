-- heartbeat_callback(callback, timeout_s) -> (job_id, number, until): the callback times out so many seconds from now, and not before;
-- nothing else changes. Only while the job waits. timeout_s: 0.01 s to 365 days.
-- Arrow: none. Guard: the callback, not answered. Locks: its lease row. Errors: AW001, AW002, AW008.
create or replace function {schema}.heartbeat_callback(
    p_callback text, p_timeout_s float8, out job_id bigint, out number int, out until timestamptz)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    perform require_read_committed('heartbeat_callback');
    if p_timeout_s is null or not (p_timeout_s between 0.01 and 31536000) then
        perform refuse_request('', 'timeout_s: must be 0.01 to 31536000 seconds');
    end if;
    update leases as l
    set callback_until = due_after(p_timeout_s)
    where l.callback_id = callback_uuid(p_callback) and l.callback_answered_at is null and l.state = 'waiting_external'
    returning l.job_id, l.callback_no, l.callback_until into job_id, number, until;
    if not found then
        perform refuse_callback(p_callback);
    end if;
end
$$;
