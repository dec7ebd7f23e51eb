-- job(id) -> the job with the columns of the view jobs, or no row. Reads places by index, newest slots first.
-- Guard: none. Locks: none. Errors: none.
-- Stable on purpose: every look shares the caller's snapshot, in which a job has exactly one place.
create or replace function {schema}.job(p_job_id bigint)
returns table(
    id bigint, kind text, queue text, state text, priority smallint, attempt smallint, max_attempts smallint,
    run_at timestamptz, created_at timestamptz, attempted_at timestamptz, finalized_at timestamptz, args json,
    metadata json, tags text[], ordering_key text, errors jsonb, snoozes int, run_lease bigint, reason text,
    runtime_id uuid, dead boolean, progress json, deadline_s float8)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_slot int;
begin
    return query select j.* from stored_jobs() as j where j.id = p_job_id;
    if found then
        return;
    end if;
    for v_slot in select s.slot from slots as s order by s.state = 'free', s.generation desc loop
        case v_slot
{each_slot}
        when {slot} then
            return query select j.* from ring_jobs_{slot}() as j where j.id = p_job_id;
{end_slot}
        end case;
        if found then
            return;
        end if;
    end loop;
end
$$;
