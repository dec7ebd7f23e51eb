-- prune_dead(retention_s, limit) -> 'dropped 12 dead jobs', or 'nothing'. Dead jobs older than their queue's dlq_retention_s, or
-- than retention_s where the queue has none of its own, go for good; at most `limit` of each queue a call.
-- Queue by queue, so that one which keeps its dead for years does not hide those of the others.
-- Arrow: failed (dead) -> gone. Guard: the row. Locks: these rows, skip locked. Errors: AW002.
create or replace function {schema}.prune_dead(p_retention_s float8, p_limit int) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
    v_queue text;
    v_keep_s float8;
    v_old timestamptz;
    v_gone bigint := 0;
begin
    perform require_read_committed('prune_dead');
    select x.queue into v_queue from jobs_dead as x order by x.queue limit 1;
    while found loop
        select q.dlq_retention_s into v_keep_s from queues as q where q.queue = v_queue;
        v_old := clock_timestamp() - make_interval(secs => least(coalesce(v_keep_s, p_retention_s), 3155760000));
        v_gone := v_gone + cardinality(drop_dead(array(
            select x.job_id
            from jobs_dead as x
            where x.queue = v_queue
                and x.finalized_at < v_old  -- a variable: beside a call of the clock the index would be read to its end
            order by x.finalized_at, x.job_id
            limit p_limit)));
        select x.queue into v_queue from jobs_dead as x where x.queue > v_queue order by x.queue limit 1;
    end loop;
    return case when v_gone = 0 then 'nothing' else format('dropped %s dead jobs', v_gone) end;
end
$$;
