-- prune_slot(slot) -> null when the slot is empty and free now, else why not. The caller holds the ring.
-- The full check runs without a lock; under ACCESS EXCLUSIVE only what can be newer is looked at: rows beyond the
-- cursors (index probes) and receipts above the last one seen.
-- Locks: the six partitions, ACCESS EXCLUSIVE, not waited for. Errors: none.
create or replace function {schema}.prune_slot(p_slot int) returns text
language plpgsql volatile
as $$
declare
    v_tables text := (select string_agg(t::text, ', ') from {schema}.slot_tables(p_slot) as t);
    v_why text;
    v_last bigint;
    v_queue text;
    v_receipt bigint;
begin
    execute format('select coalesce(max(receipt_id), 0) from {schema}.receipts_%s', p_slot) into v_last;
    v_why := {schema}.slot_is_done(p_slot);
    if v_why is not null then
        return v_why;
    end if;
    begin
        execute format('lock table %s in access exclusive mode nowait', v_tables);
    exception when lock_not_available then
        return format('slot %s: in use', p_slot);
    end;
    execute format('select u.queue from {schema}.unclaimed_queues_%s() as u limit 1', p_slot) into v_queue;
    execute format('select {schema}.open_receipt_%s($1)', p_slot) into v_receipt using v_last;
    if v_queue is not null or v_receipt is not null then
        return format('slot %s: used since', p_slot);
    end if;
    execute format('truncate %s', v_tables);
    delete from {schema}.drained_lanes as d where d.slot = p_slot;
    update {schema}.slots
       set state = 'free', opened_at = null, sealed_at = null, sealed_xid = null, exhausted_at = null, open_from = 0,
           keys_to = -9223372036854775808
     where slot = p_slot;
    return null;
end
$$;
