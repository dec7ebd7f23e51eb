-- newest_deferred(state, queue, kind, limit, before) -> ids of deferred jobs, highest first. A state without a queue steps through
-- the queues, as the index begins with the queue.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.newest_deferred(
    p_state text, p_queue text, p_kind text, p_limit int, p_before bigint
) returns bigint[]
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_bitmapscan = off  -- newest first is a walk down an index that stops at the limit
as $$
begin
    if p_state is null and p_queue is null then
        return array(
            select d.job_id
            from jobs_deferred as d
            where d.job_id < p_before and (p_kind is null or d.kind = p_kind)
            order by d.job_id desc
            limit p_limit);
    end if;
    return array(
        with recursive name(queue) as (
            (select d.queue from jobs_deferred as d where p_queue is null or d.queue = p_queue order by d.queue limit 1)
            union all
            select (select d.queue from jobs_deferred as d where d.queue > n.queue order by d.queue limit 1)
            from name as n
            where n.queue is not null and p_queue is null
        )
        select i.job_id
        from name as n
        cross join unnest(array['scheduled', 'retryable']) as s(state)
        cross join lateral (
            select d.job_id
            from jobs_deferred as d
            where d.queue = n.queue and d.state = s.state and d.job_id < p_before
                and (p_kind is null or d.kind = p_kind)
            order by d.job_id desc
            limit p_limit
        ) as i
        where n.queue is not null and (p_state is null or s.state = p_state)
        order by i.job_id desc
        limit p_limit);
end
$$;
