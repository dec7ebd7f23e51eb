-- slot_is_done(slot) -> null when everything in it is claimed and closed, else why not.
-- Rows first, receipts second: every claim of a row seen claimed has committed, so its receipt shows in the second
-- look. Locks: none. Errors: none.
create or replace function {schema}.slot_is_done(p_slot int) returns text
language plpgsql volatile
as $$
declare
    v_queue text;
    v_receipt bigint;
begin
    execute format('select u.queue from {schema}.unclaimed_queues_%s() as u limit 1', p_slot) into v_queue;
    if v_queue is not null then
        return format('slot %s: unclaimed jobs in queue %s', p_slot, v_queue);
    end if;
    execute format('select {schema}.open_receipt_%s(0)', p_slot) into v_receipt;
    if v_receipt is not null then
        return format('slot %s: receipt %s is open', p_slot, v_receipt);
    end if;
    return null;
end
$$;
