-- list_stored(state, queue, kind, limit, before) -> the part of list_jobs for deferred, returned, moved, ended and dead jobs: each
-- table by the index that its filters allow, at most `limit` rows of each.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.list_stored(
    p_state text, p_queue text, p_kind text, p_limit int, p_before bigint)
returns table(
    id bigint, kind text, queue text, state text, priority smallint, attempt smallint, max_attempts smallint,
    run_at timestamptz, created_at timestamptz, attempted_at timestamptz, finalized_at timestamptz, args json,
    metadata json, tags text[], ordering_key text, errors jsonb, snoozes int, run_lease bigint, reason text,
    runtime_id uuid, dead boolean, progress json, deadline_s float8)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_sort = off  -- newest first is a walk down an index that stops at the limit
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_ids bigint[] := '{}';
begin
    if p_state is null or p_state in ('scheduled', 'retryable') then
        v_ids := v_ids || newest_deferred(p_state, p_queue, p_kind, p_limit, p_before);
    end if;
    if p_state is null or p_state in ('failed', 'cancelled', 'completed') then
        v_ids := v_ids || array(
            select f.job_id
            from jobs_finished as f
            where f.job_id < p_before and (p_state is null or f.state = p_state)
                and (p_queue is null or f.queue = p_queue) and (p_kind is null or f.kind = p_kind)
            order by f.job_id desc
            limit p_limit);
    end if;
    if p_state is null or p_state = 'failed' then
        v_ids := v_ids || array(
            select x.job_id
            from jobs_dead as x
            where x.job_id < p_before and (p_queue is null or x.queue = p_queue) and (p_kind is null or x.kind = p_kind)
            order by x.job_id desc
            limit p_limit);
    end if;
    if p_state is null or p_state = 'available' then
        v_ids := v_ids || array(
            select b.job_id
            from jobs_returned as b
            where b.job_id < p_before and (p_queue is null or b.queue = p_queue) and (p_kind is null or b.kind = p_kind)
            order by b.job_id desc
            limit p_limit);
    end if;
    if p_state is null or p_state in ('running', 'waiting_external') then
        v_ids := v_ids || array(
            select l.job_id
            from leases as l
            where l.job_id < p_before and (p_state is null or l.state = p_state)
                and (p_queue is null or l.queue = p_queue) and (p_kind is null or l.kind = p_kind)
            order by l.job_id desc
            limit p_limit);
    end if;
    return query
    select j.* from unnest(v_ids) as i(id) join lateral (select s.* from stored_jobs() as s where s.id = i.id) as j on true;
end
$$;
