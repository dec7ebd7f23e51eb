-- complete_one_<slot>(receipt, nonce, bit) -> whether this attempt is completed now. False: it had ended, it was moved, it is none
-- of the receipt, or its completion moves unique keys; complete knows. Waits for whoever holds the receipt's row.
-- Arrow: running -> completed. Guard: receipt, nonce and a clear bit. Locks: the receipt. Errors: 55P03 as the caller sets it.
create or replace function {schema}.complete_one_{slot}(p_receipt bigint, p_nonce bigint, p_bit bigint) returns boolean
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
    with closed as (
        update {schema}.receipts_{slot} as r set closed = r.closed | p_bit
         where r.receipt_id = p_receipt and r.nonce = p_nonce and r.closed & p_bit = 0
           and p_bit & (9223372036854775807 >> (63 - r.n)) <> 0 and (r.yields is null or r.yields & p_bit = 0)
        returning r.receipt_id
    )
    insert into {schema}.completions_{slot} (slot, receipt_id, mask, outcome)
    select {slot}, c.receipt_id, p_bit, 1 from closed as c;
    return found;
end
$$;
