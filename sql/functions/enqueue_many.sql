-- enqueue_many(json array of objects) -> job ids in the array's order; all or nothing.
-- The objects have the names of enqueue's parameters without p_; kind and args are required, names that are not known
-- are ignored, run_at is ISO 8601 with a zone.
-- Arrow: (new) -> available | scheduled. Guard: none. Locks: none but the new rows'.
-- Errors: AW001 naming the item and the field ("jobs[7].priority: must be 1 to 4").
--
-- One document, one pass. Items without a due time, nearly all of them, go straight from the document to the ring.
create or replace function {schema}.enqueue_many(p_jobs json) returns bigint[]
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_ids bigint[];
    v_notify boolean;
    v_short boolean := octet_length(p_jobs::text) <= 8388608;  -- and so is each of its parts
begin
    if p_jobs is null or json_typeof(p_jobs) <> 'array' then
        perform refuse_request('', 'jobs: must be an array of objects');
    end if;
    -- An escaped name could hide a run_at from the first test: such documents take the road that looks at every item.
    if strpos(p_jobs::text, '"run_at"') > 0 or strpos(p_jobs::text, '\u') > 0 then
        v_ids := enqueue_many_timed(p_jobs);
    else
        with put as (
            insert into jobs_ready (kind, args, queue, priority, max_attempts, metadata, tags, ordering_key)
            select
                case when json_typeof(j.args) = 'object' and (v_short or args_fit(j.args))
                    and request_fits(
                        j.kind, coalesce(j.queue, 'default'), coalesce(j.priority, 2), coalesce(j.max_attempts, 25),
                        j.metadata, j.tags, j.ordering_key)
                    then j.kind
                    else refuse_item(p_jobs)
                end,
                j.args, coalesce(j.queue, 'default'), coalesce(j.priority, 2), coalesce(j.max_attempts, 25),
                j.metadata, j.tags, j.ordering_key
            from json_to_recordset(p_jobs) as j(
                kind text, args json, queue text, priority int, max_attempts int, metadata json, tags text[],
                ordering_key text)
            returning job_id, queue
        )
        -- Ids are drawn one by one in the order of the document, so rising ids are that order.
        select
            array(select p.job_id from put as p order by p.job_id),
            exists (
                select from queue_waiters as w
                where w.until > clock_timestamp() and exists (select from put as p where p.queue = w.queue))
        into v_ids, v_notify;
        if v_notify then
            perform pg_notify('awa_pool', '');
        end if;
    end if;
    return v_ids;
exception
    when data_exception then  -- what is not of the column's type fails before any bound is looked at
        perform refuse_item(p_jobs);
        raise;
end
$$;
