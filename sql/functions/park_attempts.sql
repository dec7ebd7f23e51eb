-- park_attempts(json array) -> (item, status, state): attempts whose handlers returned to wait with none alive. The lease row stays,
-- without runtime: heartbeat rescue and audit pass it by, and an answer, a cancel or the timeout ends it.
-- status: done; refused (it is not the attempt's newest callback); stale; busy; invalid. state: waiting_external; available where
-- the answer came before; cancelled where the job's unique key does not hold while it runs, and another has it.
-- Items: as of wait_for_callbacks.
-- Arrow: running | waiting_external -> waiting_external; -> available; -> cancelled. Guard: the lease row with the callback's id.
-- Locks: lease rows by (receipt, index), SKIP LOCKED; keys, as key_pass. Errors: AW002, AW006, 40P01; class 22 for what is no number.
create or replace function {schema}.park_attempts(p_items json) returns table(item int, status text, state text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    t record;
    v leases;
    v_holder bigint;
    v_blocked boolean;
begin
    perform require_read_committed('park_attempts');
    for t in select a.* from attempts_told(p_items) as a order by a.receipt_id, a.idx, a.turn loop
        item := t.item;
        state := null;
        select l.* into v
        from leases as l
        where t.sound and l.receipt_id = t.receipt_id and l.idx = t.idx and l.nonce = t.nonce and l.job_id = t.job_id
            and l.run_lease + 1 = t.run_lease and l.runtime_id is not null
        for update skip locked;
        if not found then
            status := case
                when not t.sound then 'invalid'
                when exists (
                    select from leases as l
                    where l.receipt_id = t.receipt_id and l.idx = t.idx and l.nonce = t.nonce
                        and l.job_id = t.job_id and l.run_lease + 1 = t.run_lease and l.runtime_id is not null)
                    then 'busy'
                else 'stale'
            end;
        elsif v.callback_id is distinct from t.callback_id then
            status := 'refused';
        else
            status := 'done';
            state := case when v.callback_answered_at is null then 'waiting_external' else 'available' end;
            select m.blocked, m.holder into v_blocked, v_holder from lease_keys(v, state) as m;
            if v_blocked and v_holder is null then
                status := 'busy';
                state := null;
            elsif v_blocked then
                state := 'cancelled';
                perform leave_lease(v, 5, v.attempt + 1, v.metadata, null, duplicate_reason(v_holder), null);
            elsif state = 'available' then
                perform leave_lease(
                    v, 6, v.attempt, with_answer(v.metadata, v.callback_no, v.callback_payload), null, null, null);
                perform notify_waiters(array[v.queue]);
            else
                update leases as l
                set
                    state = 'waiting_external', runtime_id = null, request_id = null,
                    waiting_since = coalesce(l.waiting_since, clock_timestamp())
                where l.receipt_id = v.receipt_id and l.idx = v.idx;
            end if;
        end if;
        return next;
    end loop;
end
$$;
