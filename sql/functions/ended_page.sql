-- ended_page(state, filter, from, limit) -> ids of at most `limit` jobs of the history in that state, 'failed' or 'cancelled', in the
-- order of ids from the one after `from` on. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.ended_page(
    p_state text, p_kind text, p_queue text, p_tag text, p_reason text, p_after timestamptz, p_before timestamptz,
    p_from_id bigint, p_limit int
) returns bigint[]
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
begin
    return array(
        select f.job_id
        from jobs_finished as f
        where f.state = p_state and f.job_id > coalesce(p_from_id, 0)
            and (p_kind is null or f.kind = p_kind) and (p_queue is null or f.queue = p_queue)
            and (p_tag is null or p_tag = any (f.tags)) and (p_reason is null or f.reason = p_reason)
            and (p_after is null or f.finalized_at >= p_after) and (p_before is null or f.finalized_at < p_before)
        order by f.job_id
        limit p_limit);
end
$$;
