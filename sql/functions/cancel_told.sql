-- cancel_told(id, kinds, owed) -> (job_id, told): cancel, for a caller who knows an app. told: the job is of one of these kinds, and
-- the caller evaluates its follow-ups in this transaction: no job is put in for that. Of kinds in `owed` one is put in all the
-- same, for hooks alone, as the caller cannot know whether this transaction commits.
-- Arrow, guard, locks, errors: as cancel.
create or replace function {schema}.cancel_told(
    p_job_id bigint, p_kinds text[], p_owed text[], out job_id bigint, out told boolean)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v_kind text := (select j.kind from job(p_job_id) as j);
begin
    job_id := p_job_id;
    told := coalesce(v_kind = any (p_kinds), false);
    if told then
        perform set_config('awa.outcomes_told', case when v_kind = any (p_owed) then 'specs' else 'yes' end, true);
    end if;
    perform cancel(p_job_id);
    perform set_config('awa.outcomes_told', '', true);
end
$$;
