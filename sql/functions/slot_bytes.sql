-- slot_bytes(slot) -> size of a slot's tables and indexes. Locks: none beyond reading. Errors: none.
create or replace function {schema}.slot_bytes(p_slot int) returns bigint
language plpgsql volatile
as $$
begin
    return (select coalesce(sum(pg_total_relation_size(format('%I.%I', {schema_name}, u.name || '_' || p_slot)::regclass)), 0)
              from unnest(array['jobs_ready', 'receipts', 'completions', 'tombstones']) as u (name));
end
$$;
