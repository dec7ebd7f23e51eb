-- move_ended_to_dead(state, filter, from, limit, reason) -> a row per job of the page, in order of ids: status 'done', or 'refused'
-- where another session holds it. One batch: call again from the last id on.
-- Arrow: failed (in the history) | cancelled -> failed (dead). Guard: the row in jobs_finished.
-- Locks: these rows, skip locked. Errors: AW001, AW002.
create or replace function {schema}.move_ended_to_dead(
    p_state text, p_kind text, p_queue text, p_tag text, p_reason text, p_after timestamptz, p_before timestamptz,
    p_from_id bigint, p_limit int, p_why text
) returns table(job_id bigint, status text, detail text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_ids bigint[];
    v_moved bigint[];
    v record;
begin
    perform require_read_committed('move_ended_to_dead');
    if p_state is null or p_state not in ('failed', 'cancelled') then
        perform refuse_request('', 'state: only failed and cancelled jobs are moved by a filter');
    end if;
    v_ids := ended_page(p_state, p_kind, p_queue, p_tag, p_reason, p_after, p_before, p_from_id, p_limit);
    with held as materialized (
        select f.job_id from jobs_finished as f where f.job_id = any (v_ids) order by f.job_id for update skip locked
    ),
    gone as (
        delete from jobs_finished as f using held as h where f.job_id = h.job_id returning f.*
    ),
    put as (
        insert into jobs_dead (
            job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at, created_at, metadata, tags,
            ordering_key, errors, snoozes, deadline_s, unique_key, unique_states, progress, state, reason, finalized_at)
        select
            g.job_id, g.queue, g.priority, g.kind, g.args, g.attempt, g.max_attempts, g.run_lease, g.run_at,
            g.created_at, g.metadata, g.tags, g.ordering_key, g.errors, g.snoozes, g.deadline_s, g.unique_key,
            g.unique_states, g.progress, 'failed', left(p_why, 1000), clock_timestamp()
        from gone as g
        on conflict (job_id) do nothing
    )
    select
        coalesce(array_agg(g.job_id), '{}') as job_ids, array_agg(g.unique_key) as keys,
        array_agg(g.unique_states::int) as masks, array_agg('failed'::text) as states
    into v
    from gone as g;
    v_moved := v.job_ids;
    if v.keys is not null then
        perform settle_keys(v.job_ids, v.keys, v.masks, v.states);
    end if;
    return query
    select
        i.id, case when i.id = any (v_moved) then 'done' else 'refused' end,
        case when i.id = any (v_moved) then 'failed' else 'held by another session' end
    from unnest(v_ids) with ordinality as i(id, n)
    order by i.n;
end
$$;
