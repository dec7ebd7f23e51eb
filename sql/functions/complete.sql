-- complete(slots, receipts, nonces, masks) -> per receipt: done, stale, busy (see close_bits_<slot>). The batch road. Attempts
-- whose completion gives up a unique key, or takes one, go by complete_yielding, and have rows of their own.
-- Arrow: running -> completed. Locks: unique keys; receipts by (slot, id), SKIP LOCKED.
-- Errors: AW006 for a slot that is none.
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
    v_yields boolean := false;
begin
    if pg_sequence_last_value('{schema_text}.yielding_seq'::regclass) is not null then  -- there were such attempts
        select array_agg(y.receipt_id) as receipts, array_agg(y.nonce) as nonces, array_agg(y.done) as done,
               array_agg(y.stale) as stale, array_agg(y.busy) as busy, array_agg(y.done | y.stale | y.busy) as bits
          into g from complete_yielding(p_slots, p_receipts, p_nonces, p_masks) as y;
        if g.receipts is not null then
            v_yields := true;
            return query select * from unnest(g.receipts, g.done, g.stale, g.busy);
            p_masks := masks_without(p_receipts, p_nonces, p_masks, g.receipts, g.nonces, g.bits);
        end if;
    end if;
    for g in
        select u.slot, array_agg(u.receipt_id) as receipts, array_agg(u.nonce) as nonces, array_agg(u.mask) as masks
          from unnest(p_slots, p_receipts, p_nonces, p_masks) as u (slot, receipt_id, nonce, mask)
         where u.mask <> 0 or not v_yields
         group by u.slot order by u.slot
    loop
        case g.slot{each_slot}
        when {slot} then return query select * from complete_{slot}(g.receipts, g.nonces, g.masks);{end_slot}
        else raise exception 'no slot is called %', g.slot using errcode = 'AW006';
        end case;
    end loop;
end
$$;
