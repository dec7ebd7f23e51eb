-- slot_bytes(slot) -> size of a slot's tables and indexes. Locks: none beyond reading. Errors: none.
create or replace function {schema}.slot_bytes(p_slot int) returns bigint
language plpgsql volatile
as $$
begin
    return (select coalesce(sum(pg_total_relation_size(t)), 0) from {schema}.slot_tables(p_slot) as t);
end
$$;
