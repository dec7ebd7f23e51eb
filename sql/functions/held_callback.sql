-- held_callback(id, waiting) -> the lease row of the attempt whose open callback this is, locked until the transaction ends;
-- `waiting`: only while the job waits for it. What answers callbacks from outside begins here: the first to hold the row wins,
-- and the others find it answered or gone.
-- Guard: the callback's id, not answered. Locks: the lease row; waits for another session that answers it.
-- Errors: AW002; AW008 for an id that is unknown, malformed, spent, or of an older callback.
create or replace function {schema}.held_callback(p_callback text, p_waiting boolean) returns {schema}.leases
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v leases;
begin
    perform require_read_committed('an answer to a callback');
    select l.* into v
    from leases as l
    where l.callback_id = callback_uuid(p_callback) and l.callback_answered_at is null
        and (not p_waiting or l.state = 'waiting_external')
    for update;
    if not found then
        perform refuse_callback(p_callback);
    end if;
    return v;
end
$$;
