-- resolve_callback(callback, payload, default action) -> (job_id, number, state, action): an answer whose meaning is not the sender's to
-- say. action: complete, fail or ignore, which changes nothing and leaves the callback open.
-- Arrow, locks: as complete_external, fail_external; ignore: none. Guard: the callback (held_callback). Errors: AW001, AW002, AW008.
create or replace function {schema}.resolve_callback(
    p_callback text, p_payload json default null, p_default_action text default 'ignore',
    out job_id bigint, out number int, out state text, out action text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v leases;
begin
    action := p_default_action;
    case p_default_action
    when 'complete' then
        select r.job_id, r.number, r.state into job_id, number, state
        from complete_external(p_callback, p_payload) as r;
    when 'fail' then
        perform checked_answer(p_payload);
        select r.job_id, r.number, r.state into job_id, number, state
        from fail_external(p_callback, 'an answer came, and by default such an answer fails the job') as r;
    when 'ignore' then
        perform checked_answer(p_payload);
        v := held_callback(p_callback, false);
        job_id := v.job_id;
        number := v.callback_no;
        state := v.state;
    else
        perform refuse_request('', 'default_action: must be complete, fail or ignore');
    end case;
end
$$;
