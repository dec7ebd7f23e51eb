-- list_jobs(state, queue, kind, limit, before_id) -> at most 1,000 jobs with the columns of the view jobs, highest id first; null
-- filters take all; page on with the last id seen.
-- Guard: none. Locks: none. Errors: AW001. Stable on purpose: all places are read under one snapshot.
create or replace function {schema}.list_jobs(
    p_state text, p_queue text, p_kind text, p_limit int, p_before_id bigint)
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
    v_before bigint := coalesce(p_before_id, 9223372036854775807);
begin
    if p_limit is null or p_limit not between 1 and 1000 then
        perform refuse_request('', 'limit: must be 1 to 1000');
    end if;
    if p_state is not null and p_state not in (
        'scheduled', 'available', 'running', 'completed', 'retryable', 'failed', 'cancelled', 'waiting_external')
    then
        perform refuse_request('', format('state: there is no state %s', p_state));
    end if;
    return query
    select j.*
    from (
        select s.* from list_stored(p_state, p_queue, p_kind, p_limit, v_before) as s
        union all
        select r.* from list_ring(p_state, p_queue, p_kind, p_limit, v_before) as r
        where p_state is null or p_state in ('available', 'running', 'completed')
    ) as j
    order by j.id desc
    limit p_limit;
end
$$;
