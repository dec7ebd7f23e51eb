-- complete(slots, receipts, nonces, masks) -> per receipt: done, stale, busy (see close_bits_<slot>). The batch road.
-- Arrow: running -> completed. Locks: receipts by (slot, id), SKIP LOCKED. Errors: AW006 for a slot that is none.
create or replace function {schema}.complete(p_slots int[], p_receipts bigint[], p_nonces bigint[], p_masks bigint[])
returns table (receipt_id bigint, done bigint, stale bigint, busy bigint)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    g record;
begin
    for g in
        select u.slot, array_agg(u.receipt_id) as receipts, array_agg(u.nonce) as nonces, array_agg(u.mask) as masks
          from unnest(p_slots, p_receipts, p_nonces, p_masks) as u (slot, receipt_id, nonce, mask)
         group by u.slot order by u.slot
    loop
        case g.slot{each_slot}
        when {slot} then return query select * from complete_{slot}(g.receipts, g.nonces, g.masks);{end_slot}
        else raise exception 'no slot is called %', g.slot using errcode = 'AW006';
        end case;
    end loop;
end
$$;
