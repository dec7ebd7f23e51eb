-- copy_target() -> the table to COPY new jobs into, in this very transaction: the current slot's own partition, whose rows
-- need no routing and take their slot from a constant default (50,000 rows: 167 ms of CPU through the parent, 133 here).
-- Takes the transaction's xid first: then the slot cannot be closed before this transaction has ended.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.copy_target() returns text
language plpgsql volatile
as $$
begin
    perform pg_current_xact_id();
    return format('%I.%I', {schema_name}, 'jobs_ready_' || pg_sequence_last_value('{schema_text}.current_slot'::regclass));
end
$$;
