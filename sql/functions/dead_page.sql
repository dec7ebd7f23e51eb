-- dead_page(filter, newest first, from, limit) -> ids and times of death of at most `limit` dead jobs, in the order of (died_at, id);
-- null filters take all, `from` is the last row of the page before. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.dead_page(
    p_ids bigint[], p_kind text, p_queue text, p_tag text, p_reason text, p_after timestamptz, p_before timestamptz,
    p_newest_first boolean, p_from_at timestamptz, p_from_id bigint, p_limit int
) returns table(job_id bigint, died_at timestamptz)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_bitmapscan = off  -- a page is a walk along an index that stops at the limit
set enable_sort = off
as $$
#variable_conflict use_column
begin
    if p_ids is not null then
        return query
        select x.job_id, x.finalized_at
        from (select distinct i.id from unnest(p_ids) as i(id)) as i
        join jobs_dead as x on x.job_id = i.id
        where (p_kind is null or x.kind = p_kind) and (p_queue is null or x.queue = p_queue)
            and (p_tag is null or p_tag = any (x.tags)) and (p_reason is null or x.reason = p_reason)
            and (p_after is null or x.finalized_at >= p_after) and (p_before is null or x.finalized_at < p_before)
        limit p_limit;
    elsif p_newest_first then
        return query
        select x.job_id, x.finalized_at
        from jobs_dead as x
        where (p_kind is null or x.kind = p_kind) and (p_queue is null or x.queue = p_queue)
            and (p_tag is null or p_tag = any (x.tags)) and (p_reason is null or x.reason = p_reason)
            and (p_after is null or x.finalized_at >= p_after) and (p_before is null or x.finalized_at < p_before)
            and (p_from_at is null or (x.finalized_at, x.job_id) < (p_from_at, p_from_id))
        order by x.finalized_at desc, x.job_id desc
        limit p_limit;
    else
        return query
        select x.job_id, x.finalized_at
        from jobs_dead as x
        where (p_kind is null or x.kind = p_kind) and (p_queue is null or x.queue = p_queue)
            and (p_tag is null or p_tag = any (x.tags)) and (p_reason is null or x.reason = p_reason)
            and (p_after is null or x.finalized_at >= p_after) and (p_before is null or x.finalized_at < p_before)
            and (p_from_at is null or (x.finalized_at, x.job_id) > (p_from_at, p_from_id))
        order by x.finalized_at, x.job_id
        limit p_limit;
    end if;
end
$$;
