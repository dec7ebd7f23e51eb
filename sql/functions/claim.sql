-- claim(queues, limits, total, max_bytes, chunk, runtime, request, waiting) -> a row with note 'receipt' per receipt,
-- and for each queue that gave nothing a row with note 'empty', 'busy' (another claim holds its lane, or the bounds
-- were used up before it: do not back off) or 'paused'. bodies: JSON texts
-- [job_id, kind, args, attempt, run_lease, max_attempts, extra].
-- Arrow: available -> running. Order: queues as given; in each what was given back, then priority 1 to 4, slots
-- oldest first. Guard: the lane's cursor. Locks: lanes (try), rows of jobs_returned (skip locked).
-- Errors: AW001 bounds, AW002 isolation, AW003 cursor from the future.
create or replace function {schema}.claim(
    p_queues text[], p_limits int[], p_total int, p_max_bytes bigint, p_chunk int, p_runtime uuid, p_request bigint,
    p_waiting boolean
) returns table (
    queue text, note text, slot int, receipt_id bigint, nonce bigint, priority int, job_ids bigint[], kinds text[],
    bodies text[])
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_variable
declare
    v_left int := p_total;
    v_bytes bigint := p_max_bytes;
    v_room int;
    v_given int;
    v_size bigint;
    v_busy boolean;
    v_began timestamptz;
    v_slow boolean;
    v record;
    v_name text;
    r record;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform require_read_committed('claim');
    end if;
    if cardinality(p_queues) <> cardinality(p_limits) or p_chunk not between 1 and 63 or p_total is null
        or p_max_bytes is null then
        raise exception 'claim: as many limits as queues, a chunk of 1 to 63, total and max_bytes' using errcode = 'AW001';
    end if;
    if current_setting('synchronous_commit') = 'off' then
        -- a claim lost in a crash would hand its receipt ids out again
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if p_waiting then
        perform renew_waiters(p_queues);
    end if;
    for n in 1 .. cardinality(p_queues) loop
        v_name := p_queues[n];
        v_room := least(coalesce(p_limits[n], v_left), v_left);
        v_given := 0;
        v_busy := false;
        queue := v_name;
        note := null; slot := null; receipt_id := null; nonce := null; priority := null;
        job_ids := null; kinds := null; bodies := null;
        if v_room <= 0 or v_bytes <= 0 then
            note := 'busy';
            return next;
            continue;
        end if;
        v_began := clock_timestamp();
        select (select q from queues as q where q.queue = v_name) as setting,
               exists (select from jobs_returned as j where j.queue = v_name) as returned,
               array_agg(s.slot order by s.generation) as slots,
               array_agg(s.generation order by s.generation) as generations,
               array_agg(s.long_sealed order by s.generation) as sealed, bool_or(s.long_sealed) as any_sealed,
               array_agg(s.mask order by s.generation) as masks, coalesce(bit_or(s.mask), 0) as lanes
          into v
          from (select u.slot, u.generation, peek_lanes(u.slot, v_name) as mask,
                       -- long enough for whoever still puts jobs there to be the sweep's: a minute, or two rotations since
                       u.sealed_at < clock_timestamp() - interval '1 min'
                           or u.place < cardinality(l.slots) - 2 as long_sealed
                  from (select c.*, array(  -- from the oldest on: marks of before may be many, where a snapshot keeps them
                                    select d.generation * 24 + d.slot from drained_lanes as d
                                     where d.queue = v_name and d.generation >= c.generations[1]) as drained
                          from claimable_slots as c order by c.seq desc limit 1) as l
                 cross join unnest(l.slots, l.generations, l.sealed_at)
                            with ordinality as u (slot, generation, sealed_at, place)
                 where u.generation * 24 + u.slot <> all (l.drained)
                offset 0) as s;
        v_slow := clock_timestamp() > v_began + interval '2 ms';
        if (v.setting).paused_at is not null then
            note := 'paused';
            return next;
            continue;
        end if;
        if v.returned then
            v_size := 0;
            for r in select * from claim_returned(v_name, v_room, v_bytes, p_chunk, p_runtime, p_request) loop
                note := 'receipt'; slot := r.slot; receipt_id := r.receipt_id; nonce := r.nonce; priority := r.priority;
                job_ids := r.job_ids; kinds := r.kinds; bodies := r.bodies;
                if (v.setting).deadline_s is not null then
                    bodies := with_queue_deadline(bodies, (v.setting).deadline_s);
                end if;
                return next;
                v_given := v_given + cardinality(r.job_ids);
                v_size := r.bytes;
            end loop;
            v_bytes := v_bytes - v_size;
        end if;
        if v_given < v_room and v_bytes > 0 then
            for p in 1 .. 4 loop
                continue when v.lanes & (1 << p) = 0;
                if not try_lane_lock(v_name, p) then
                    v_busy := true;
                    continue;
                end if;
                for i in 1 .. cardinality(v.slots) loop
                    exit when v_given >= v_room or v_bytes <= 0;
                    continue when v.masks[i] & (1 << p) = 0;
                    v_size := 0;
                    for r in select * from claim_lane(v.slots[i], v_name, p, v_room - v_given, v_bytes, p_chunk,
                                                      p_runtime, p_request) loop
                        note := 'receipt'; slot := v.slots[i]; receipt_id := r.receipt_id; nonce := r.nonce; priority := p;
                        job_ids := r.job_ids; kinds := r.kinds; bodies := r.bodies;
                        if (v.setting).deadline_s is not null then
                            bodies := with_queue_deadline(bodies, (v.setting).deadline_s);
                        end if;
                        return next;
                        v_given := v_given + cardinality(r.job_ids);
                        v_size := r.bytes;
                    end loop;
                    v_bytes := v_bytes - v_size;
                end loop;
                exit when v_given >= v_room or v_bytes <= 0;
            end loop;
            if v.any_sealed then
                perform mark_drained(v_name, v.slots, v.generations, v.sealed, v.masks);
            end if;
            if v_slow and v_given = 0 then
                -- looking at nothing took long: rows that were rolled back stand beyond the cursors
                perform advance_cursors(v_name, v.slots);
            end if;
        end if;
        v_left := v_left - v_given;
        if v_given = 0 then
            note := case when v_busy then 'busy' else 'empty' end;
            return next;
        end if;
    end loop;
end
$$;
