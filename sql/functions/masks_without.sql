-- masks_without(receipts, nonces, masks, receipts, nonces, bits) -> the masks, in order, without the bits that the second list
-- names for the same receipt and nonce. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.masks_without(
    p_receipts bigint[], p_nonces bigint[], p_masks bigint[], p_from bigint[], p_from_nonces bigint[], p_bits bigint[]
) returns bigint[]
language sql stable
set search_path = {schema}, pg_catalog, pg_temp
set enable_hashjoin = on
as $$
    select array_agg(u.mask & ~coalesce(k.bits, 0) order by u.place)
    from unnest(p_receipts, p_nonces, p_masks) with ordinality as u(receipt_id, nonce, mask, place)
    left join unnest(p_from, p_from_nonces, p_bits) as k(receipt_id, nonce, bits) using (receipt_id, nonce)
$$;
