-- list_ring(state, queue, kind, limit, before) -> the part of list_jobs for jobs of the ring. Running ones come by their open
-- receipts; the others by windows of ids from the top, so wide that each holds a few hundred candidates. Slots without any row of
-- the wanted state are passed by; where few jobs are available, they are read from their lanes.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.list_ring(
    p_state text, p_queue text, p_kind text, p_limit int, p_before bigint)
returns table(
    id bigint, kind text, queue text, state text, priority smallint, attempt smallint, max_attempts smallint,
    run_at timestamptz, created_at timestamptz, attempted_at timestamptz, finalized_at timestamptz, args json,
    metadata json, tags text[], ordering_key text, errors jsonb, snoozes int, run_lease bigint, reason text,
    runtime_id uuid, dead boolean, progress json, deadline_s float8)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_high bigint := least(p_before, coalesce(pg_sequence_last_value('{schema_text}.job_id_seq'::regclass), 0) + 1);
    v_low bigint;
    v_width bigint := 1024;
    v_seen int;
    v_part int;
    v_left int := p_limit;
    v_missed int := 0;  -- windows with candidates of which none was in the state
    v_slots int[] := slots_with(p_state);
    v_slot int;
    v_ids bigint[];
begin
    if p_state = 'running' then
        return query select r.* from list_running(p_queue, p_kind, p_limit, p_before) as r;
        return;
    end if;
    if p_state = 'available' then
        v_ids := few_unclaimed(v_slots, p_queue, p_kind, p_limit, p_before);
        if v_ids is not null then
            return query
            select j.* from unnest(v_ids) as i(id) cross join lateral (select r.* from job(i.id) as r) as j
            where j.state = 'available';
            return;
        end if;
    end if;
    while v_high > 0 and v_left > 0 and v_slots <> '{}' loop
        v_low := greatest(v_high - v_width, 0);
        v_seen := 0;
        foreach v_slot in array v_slots loop
            v_seen := v_seen + count_ids(v_slot, v_low, v_high, p_queue, p_kind, 2000);
            exit when v_seen >= 2000 and v_width > 256;
        end loop;
        if v_seen >= 2000 and v_width > 256 then
            v_width := greatest(v_width / 8, 256);
            continue;
        end if;
        foreach v_slot in array v_slots loop
            exit when v_seen = 0;
            -- Up to what is left from every slot, as slots overlap in ids; list_jobs sorts and cuts.
            case v_slot
{each_slot}
            when {slot} then
                return query
                select j.*
                from ring_jobs_{slot}() as j
                where j.id >= v_low and j.id < v_high and (p_state is null or j.state = p_state)
                    and (p_queue is null or j.queue = p_queue) and (p_kind is null or j.kind = p_kind)
                order by j.id desc
                limit p_limit;
{end_slot}
            end case;
            get diagnostics v_part = row_count;
            v_left := v_left - v_part;
            v_missed := case when v_part > 0 then 0 else v_missed end;
        end loop;
        v_high := v_low;
        v_missed := v_missed + (v_seen > 0)::int;
        if v_missed > 5 and p_state is not null then
            -- A long stretch of others: ask once where the next one can be.
            select max(top_id(s, p_state, v_high, p_queue)) + 1 into v_high from unnest(v_slots) as s;
            v_high := coalesce(v_high, 0);
            v_missed := 0;
        end if;
        v_width := least(v_width, 1000000000000000000) * case when v_seen < 500 then 4 else 1 end;
    end loop;
end
$$;
