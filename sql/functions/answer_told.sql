-- answer_told(callback, action, payload, error, kinds, owed) -> (job_id, number, state, told): complete_external, fail_external or
-- retry_external (action: complete, fail, retry), for a caller who knows an app. told, kinds, owed: as cancel_told.
-- Arrow, guard, locks, errors: as the function that it calls.
create or replace function {schema}.answer_told(
    p_callback text, p_action text, p_payload json, p_error text, p_kinds text[], p_owed text[],
    out job_id bigint, out number int, out state text, out told boolean)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_kind text := (select l.kind from leases as l where l.callback_id = callback_uuid(p_callback));
begin
    told := coalesce(v_kind = any (p_kinds), false);
    if told then
        perform set_config('awa.outcomes_told', case when v_kind = any (p_owed) then 'specs' else 'yes' end, true);
    end if;
    case p_action
    when 'complete' then
        select r.job_id, r.number, r.state into job_id, number, state
        from complete_external(p_callback, p_payload) as r;
    when 'fail' then
        select r.job_id, r.number, r.state into job_id, number, state from fail_external(p_callback, p_error) as r;
    when 'retry' then
        select r.job_id, r.number, r.state into job_id, number, state from retry_external(p_callback) as r;
    else
        perform refuse_request('', 'action: must be complete, fail or retry');
    end case;
    perform set_config('awa.outcomes_told', '', true);
end
$$;
