-- resume_external(callback, payload, tells) -> (job_id, number, state): an answer, with which the job goes on. A waiting handler gets it; one
-- that has not begun to wait will (the payload is kept); a parked job becomes available, in the same attempt under a new
-- lease, and carries the answer (with_answer).
-- tells: with the commit the channel hears of it; else the caller says so afterwards (resume_and_tell).
-- Arrow: waiting_external -> running; parked -> available; running stays. Guard: the callback (held_callback). Locks: its lease
-- row; keys of a parked job, as key_pass. Errors: AW001, AW002, AW008; AW007 when another job holds a parked job's unique key
-- (nothing has changed: send it again later), 55P03 when that is about to be decided.
create or replace function {schema}.resume_external(
    p_callback text, p_payload json default null, p_tells boolean default true, out job_id bigint, out number int,
    out state text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_payload json := checked_answer(p_payload);
    v leases := held_callback(p_callback, false);
begin
    job_id := v.job_id;
    number := v.callback_no;
    if v.runtime_id is not null then
        update leases as l
        set
            state = 'running', waiting_since = null, callback_payload = v_payload,
            callback_answered_at = clock_timestamp()
        where l.receipt_id = v.receipt_id and l.idx = v.idx;
        state := 'running';
    else
        perform refuse_duplicate(v.job_id, k.holder) from lease_keys(v, 'available') as k where k.blocked;
        perform leave_lease(v, 6, v.attempt, with_answer(v.metadata, v.callback_no, v_payload), null, null, null);
        perform notify_waiters(array[v.queue]);
        state := 'available';
    end if;
    if p_tells then
        perform pg_notify('awa_pool', format('callback %s resumed', v.callback_id));
    end if;
end
$$;
