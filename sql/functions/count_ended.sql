-- count_ended(state, filter) -> how many failed or cancelled jobs of the history it takes in, by reason, and the database's time.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.count_ended(
    p_state text, p_kind text, p_queue text, p_tag text, p_reason text, p_after timestamptz, p_before timestamptz
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
        select coalesce(f.reason, '(none)') as reason, count(*) as jobs
        from jobs_finished as f
        where f.state = p_state
            and (p_kind is null or f.kind = p_kind) and (p_queue is null or f.queue = p_queue)
            and (p_tag is null or p_tag = any (f.tags)) and (p_reason is null or f.reason = p_reason)
            and (p_after is null or f.finalized_at >= p_after) and (p_before is null or f.finalized_at < p_before)
        group by 1
    ) as r;
end
$$;
