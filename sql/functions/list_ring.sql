-- list_ring(state, queue, kind, limit, before) -> the part of list_jobs for jobs of the ring. Running ones come by their open
-- receipts; the others by windows of ids from the top, each four times as wide as the last, until there are enough. Slots
-- without any row of the wanted state are passed by.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.list_ring(
    p_state text, p_queue text, p_kind text, p_limit int, p_before bigint)
returns table(
    id bigint, kind text, queue text, state text, priority smallint, attempt smallint, max_attempts smallint,
    run_at timestamptz, created_at timestamptz, attempted_at timestamptz, finalized_at timestamptz, args json,
    metadata json, tags text[], ordering_key text, errors jsonb, snoozes int, run_lease bigint, reason text,
    runtime_id uuid)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_high bigint := least(p_before, pg_sequence_last_value('{schema_text}.job_id_seq'::regclass) + 1);
    v_low bigint;
    v_width bigint := greatest(256, p_limit);
    v_left int := p_limit;
    v_got int;
    v_part int;
    v_slots int[] := slots_with(p_state);
    v_slot int;
begin
    if p_state = 'running' then
        return query select r.* from list_running(p_queue, p_kind, p_limit, p_before) as r;
        return;
    end if;
    while v_high > 0 and v_left > 0 and v_slots <> '{}' loop
        v_low := greatest(v_high - v_width, 0);
        v_got := 0;
        foreach v_slot in array v_slots loop
            -- Up to the whole limit of every slot, as slots overlap in ids; list_jobs sorts and cuts.
            case v_slot
{each_slot}
            when {slot} then
                return query
                select j.*
                from ring_jobs_{slot}() as j
                where j.id >= v_low and j.id < v_high and (p_state is null or j.state = p_state)
                    and (p_queue is null or j.queue = p_queue) and (p_kind is null or j.kind = p_kind)
                order by j.id desc
                limit v_left;
{end_slot}
            end case;
            get diagnostics v_part = row_count;
            v_got := v_got + v_part;
        end loop;
        v_left := v_left - v_got;
        v_high := v_low;
        v_width := v_width * 4;
    end loop;
end
$$;
