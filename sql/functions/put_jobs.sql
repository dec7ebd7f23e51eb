-- put_jobs(json array, sound) -> job ids in the array's order: put_jobs_<slot> of the slot that is current now.
-- Arrow, guard, locks, errors: as put_jobs_<slot>.
create or replace function {schema}.put_jobs(p_jobs json, p_sound boolean) returns bigint[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
as $$
begin
    -- The xid first, then the slot: then the slot cannot be closed before this transaction has ended.
    perform pg_current_xact_id();
    case pg_sequence_last_value('{schema_text}.current_slot'::regclass){each_slot}
    when {slot} then return {schema}.put_jobs_{slot}(p_jobs, p_sound);{end_slot}
    end case;
end
$$;
