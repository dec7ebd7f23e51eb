-- purge_dead(filter, from, limit) -> a row per job of the page, in its order: status 'done', or 'refused' where another session
-- holds it. One batch: call again from the last row on.
-- Arrow: failed (dead) -> gone. Guard: the row in jobs_dead. Locks: these rows, skip locked. Errors: AW002.
create or replace function {schema}.purge_dead(
    p_ids bigint[], p_kind text, p_queue text, p_tag text, p_reason text, p_after timestamptz, p_before timestamptz,
    p_from_at timestamptz, p_from_id bigint, p_limit int
) returns table(job_id bigint, died_at timestamptz, status text, detail text)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_ids bigint[];
    v_times timestamptz[];
    v_gone bigint[];
begin
    perform require_read_committed('purge_dead');
    select array_agg(p.job_id), array_agg(p.died_at) into v_ids, v_times
    from dead_page(
        p_ids, p_kind, p_queue, p_tag, p_reason, p_after, p_before, false, p_from_at, p_from_id, p_limit) as p;
    v_gone := drop_dead(v_ids);
    return query
    select
        i.id, i.at, case when i.id = any (v_gone) then 'done' else 'refused' end,
        case when i.id = any (v_gone) then 'purged' else 'held by another session' end
    from unnest(v_ids, v_times) with ordinality as i(id, at, n)
    order by i.n;
end
$$;
