-- put_jobs(json array) -> how many jobs were put in: an attempt's follow-ups without keys, sealed by a worker.
-- Arrow: (new) -> available | scheduled. Guard: none. Locks: none but the new rows'. Errors: as stage_jobs_<slot>.
create or replace function {schema}.put_jobs(p_jobs json) returns int
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
begin
    if strpos(p_jobs::text, '"run_at"') > 0 then
        return cardinality({schema}.enqueue_many_timed(p_jobs, p_own => true));
    end if;
    -- The xid first, then the slot: then the slot cannot be closed before this transaction has ended.
    perform pg_current_xact_id();
    case pg_sequence_last_value('{schema_text}.current_slot'::regclass){each_slot}
    when {slot} then return {schema}.stage_jobs_{slot}(p_jobs);{end_slot}
    end case;
end
$$;
