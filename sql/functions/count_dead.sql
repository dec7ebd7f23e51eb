-- count_dead(filter) -> how many dead jobs it takes in, by reason, and the database's time: with that as `before`, jobs that die
-- from now on are left out. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.count_dead(
    p_ids bigint[], p_kind text, p_queue text, p_tag text, p_reason text, p_after timestamptz, p_before timestamptz
) returns table(jobs bigint, reasons json, counted_at timestamptz)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
begin
    return query
    select coalesce(sum(r.jobs), 0)::bigint, json_object_agg(r.reason, r.jobs order by r.jobs desc, r.reason), clock_timestamp()
    from (
        select coalesce(x.reason, '(none)') as reason, count(*) as jobs
        from jobs_dead as x
        where (p_ids is null or x.job_id = any (p_ids))
            and (p_kind is null or x.kind = p_kind) and (p_queue is null or x.queue = p_queue)
            and (p_tag is null or p_tag = any (x.tags)) and (p_reason is null or x.reason = p_reason)
            and (p_after is null or x.finalized_at >= p_after) and (p_before is null or x.finalized_at < p_before)
        group by 1
    ) as r;
end
$$;
