-- enqueue_many(json array of objects, exact, on_conflict) -> job ids in the array's order; all or nothing.
-- The objects have the names of enqueue's parameters without p_; kind and args are required, other names are
-- refused, run_at is ISO 8601 with a zone, unique_key is hexadecimal text. on_conflict is one for all.
-- Arrow: (new) -> available | scheduled. Guard: none. Locks: none but the new rows', and unique keys in key order.
-- Errors: AW001 naming the item and the field ("jobs[7].priority: must be 1 to 4"); AW007 naming the item.
--
-- `p_exact`: the caller vouches that no integer in the args needs more than 64 bits and that no item has another name, and
-- saves the look at that.
-- One document, one pass. Items without a due time, nearly all of them, go straight from the document to the ring.
create or replace function {schema}.enqueue_many(
    p_jobs json, p_exact boolean default false, p_on_conflict text default 'raise'
) returns bigint[]
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_ids bigint[];
    v_slot int;
    -- No args can be too large, too deep, or hold a number that no reader can.
    v_sound boolean := octet_length(p_jobs::text) <= 8388608
        and (p_exact or (numbers_fit(p_jobs) and levels_fit(p_jobs)));
begin
    if p_jobs is null or json_typeof(p_jobs) <> 'array' then
        perform refuse_request('', 'jobs: must be an array of objects');
    end if;
    if not p_exact then
        perform refuse_unknown_names(p_jobs);
    end if;
    -- An escaped name could hide what is looked for: such documents take the road that looks at every item.
    if strpos(p_jobs::text, '"unique_') > 0 or strpos(p_jobs::text, e'\\u') > 0 then
        v_ids := (enqueue_many_unique(p_jobs, p_on_conflict)).job_ids;
    elsif strpos(p_jobs::text, '"run_at"') > 0 then
        v_ids := enqueue_many_timed(p_jobs);
    else
        -- The xid first, then the slot: then the slot cannot be closed before this transaction has ended.
        perform pg_current_xact_id();
        v_slot := pg_sequence_last_value('{schema_text}.current_slot'::regclass);
        case v_slot{each_slot}
        when {slot} then v_ids := put_jobs_{slot}(p_jobs, v_sound);{end_slot}
        end case;
    end if;
    return v_ids;
exception
    when data_exception or check_violation or not_null_violation then
        perform refuse_item(p_jobs);
        raise;
end
$$;
