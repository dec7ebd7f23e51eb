-- move_open_attempts(limit, min_age_s) -> 'nothing', 'busy', or what was moved out of the ring.
-- Attempts older than min_age_s that hold up an otherwise finished slot go to leases; while fewer than six slots are
-- free, what is still unclaimed in the oldest sealed slot that has any goes to jobs_returned.
-- Locks: the ring (try), lanes (try), receipts by id (skip locked). Errors: AW002, AW003.
create or replace function {schema}.move_open_attempts(p_limit int, p_min_age_s float8 default 60) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    s record;
    v_queue text;
    v_count int;
    v_attempts int := 0;
    v_jobs int := 0;
begin
    perform require_read_committed('move_open_attempts');
    perform refuse_foreign_xids();
    if not try_ring_lock() then
        return 'busy';
    end if;
    for s in
        select t.slot from slots as t
         where t.state = 'sealed' and t.sealed_xid < pg_snapshot_xmin(pg_current_snapshot()) order by t.generation
    loop
        exit when v_attempts >= p_limit;
        execute format('select u.queue from unclaimed_queues_%s() as u limit 1', s.slot) into v_queue;
        if v_queue is null then
            execute format('select move_open_%s($1, $2)', s.slot) into v_count using p_limit - v_attempts, p_min_age_s;
            v_attempts := v_attempts + v_count;
        end if;
    end loop;
    if (select count(*) from slots as t where t.state = 'free') < 6 then
        for s in select t.slot from slots as t where t.state = 'sealed' order by t.generation loop
            v_jobs := unload_slot(s.slot, p_limit);
            exit when v_jobs > 0;  -- the oldest may be held by something else, or its lanes by claims
        end loop;
    end if;
    return coalesce(nullif(concat_ws(', ',
        case when v_attempts > 0 then format('%s attempts moved to leases', v_attempts) end,
        case when v_jobs > 0 then format('%s neglected jobs moved to jobs_returned', v_jobs) end), ''), 'nothing');
end
$$;
