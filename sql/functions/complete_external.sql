-- complete_external(callback, payload, resume) -> (job_id, number, state): completes the job, whose attempt ends here: a handler that is
-- alive can no longer change it. The payload stays with the job (with_answer). With `resume` it is resume_external.
-- Arrow: waiting_external | running -> completed. Guard: the callback (held_callback). Locks: its lease row; keys, as key_pass.
-- Errors: AW001, AW002, AW008; with `resume` as resume_external.
create or replace function {schema}.complete_external(
    p_callback text, p_payload json default null, p_resume boolean default false,
    out job_id bigint, out number int, out state text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_payload json := checked_answer(p_payload);
    v leases;
begin
    if p_resume then
        select r.job_id, r.number, r.state into job_id, number, state from resume_external(p_callback, v_payload) as r;
        return;
    end if;
    v := held_callback(p_callback, false);
    perform leave_lease(
        v, 1, v.attempt + 1, with_answer(v.metadata, v.callback_no, v_payload), null, null, 'callback');
    perform pg_notify('awa_pool', format('callback %s completed', v.callback_id));
    job_id := v.job_id;
    number := v.callback_no;
    state := 'completed';
end
$$;
