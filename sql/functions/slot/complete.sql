-- complete_<slot>(receipts, nonces, masks) -> as close_bits_<slot>. Stale bits are looked up among the moved attempts in
-- a statement of its own: a finish that had to wait for the mover would not see the lease in the same one.
-- Arrow: running -> completed. Locks: receipts by id, then leases by (receipt, index), both SKIP LOCKED. Errors: none.
create or replace function {schema}.complete_{slot}(p_receipts bigint[], p_nonces bigint[], p_masks bigint[])
returns table (receipt_id bigint, done bigint, stale bigint, busy bigint)
language plpgsql volatile
as $$
declare
    r record;
    m record;
begin
    for r in select * from {schema}.close_bits_{slot}(p_receipts, p_nonces, p_masks, 1) loop
        receipt_id := r.receipt_id; done := r.done; stale := r.stale; busy := r.busy;
        if stale <> 0 then
            select * into m from {schema}.complete_moved(r.receipt_id, p_nonces, r.stale);
            done := done | m.done; stale := stale & ~m.done & ~m.busy; busy := busy | m.busy;
        end if;
        return next;
    end loop;
end
$$;
