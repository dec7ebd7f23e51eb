-- resolve_callback(callback, payload, default action) -> (job_id, number, state, action): an answer whose meaning is not the sender's to
-- say. action: complete, fail, resume, or ignore, which changes nothing and leaves the callback open. One with rules is refused: they say
-- what the answer means, and only a client evaluates them (rules_of_callback).
-- Arrow, locks: as complete_external, fail_external, resume_external; ignore: none. Guard: the callback (held_callback).
-- Errors: AW001, AW002, AW008; with resume as resume_external.
create or replace function {schema}.resolve_callback(
    p_callback text, p_payload json default null, p_default_action text default 'ignore',
    out job_id bigint, out number int, out state text, out action text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v leases;
begin
    if p_default_action is null or p_default_action not in ('complete', 'fail', 'ignore', 'resume') then
        perform refuse_request('', 'default_action: must be complete, fail, ignore or resume');
    end if;
    perform checked_answer(p_payload);
    v := held_callback(p_callback, false);
    if v.callback_rules is not null then
        perform refuse_request(
            '', 'callback: it has rules in CEL, which SQL cannot apply: resolve it with Client.resolve_callback and awa-pool[cel]');
    end if;
    action := p_default_action;
    job_id := v.job_id;
    number := v.callback_no;
    case p_default_action
    when 'complete' then
        state := (select r.state from complete_external(p_callback, p_payload) as r);
    when 'fail' then
        state := (
            select r.state
            from fail_external(p_callback, 'an answer came, and by default such an answer fails the job') as r);
    when 'resume' then
        state := (select r.state from resume_external(p_callback, p_payload) as r);
    else
        state := v.state;
    end case;
end
$$;
