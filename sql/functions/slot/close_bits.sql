-- close_bits_<slot>(receipts, nonces, masks, outcome) -> per receipt and nonce asked for: done (bits set now), stale
-- (were set before, lie outside, or no such receipt), busy (its row is locked elsewhere: ask again).
-- Arrow: running -> whatever the outcome code says. Guard: receipt, nonce and a clear bit.
-- Locks: receipts by id, SKIP LOCKED. A receipt named twice is one mask. Errors: none.
create or replace function {schema}.close_bits_{slot}(
    p_receipts bigint[], p_nonces bigint[], p_masks bigint[], p_outcome int
) returns table (receipt_id bigint, done bigint, stale bigint, busy bigint)
language plpgsql volatile
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    -- Bounds on every look at receipts: a plan made while the table held one row, analysed, may read the index from end to
    -- end as its outer side, and is kept while the table grows (measured: 0.5 ms a call became 2.3 after 3,000).
    v_low bigint := (select min(u.receipt_id) from unnest(p_receipts) as u (receipt_id));
    v_high bigint := (select max(u.receipt_id) from unnest(p_receipts) as u (receipt_id));
begin
    return query
    with asked as materialized (
        select u.receipt_id, u.nonce, bit_or(u.mask) as mask
          from unnest(p_receipts, p_nonces, p_masks) as u (receipt_id, nonce, mask) group by 1, 2
    ), held as materialized (
        select r.receipt_id, a.nonce, a.mask & ~r.closed & (9223372036854775807 >> (63 - r.n)) as done
          from asked as a
          join {schema}.receipts_{slot} as r on r.receipt_id = a.receipt_id and r.nonce = a.nonce
         where r.receipt_id between v_low and v_high
         order by r.receipt_id
           for update of r skip locked
    ), closed as (
        update {schema}.receipts_{slot} as r set closed = r.closed | h.done
          from held as h where r.receipt_id = h.receipt_id and h.done <> 0 and r.receipt_id between v_low and v_high
    ), recorded as (
        insert into {schema}.completions_{slot} (slot, receipt_id, mask, outcome)
        select {slot}, h.receipt_id, h.done, p_outcome from held as h where h.done <> 0
    )
    select a.receipt_id, coalesce(h.done, 0),
           case when h.receipt_id is not null then a.mask & ~h.done
                when exists (select from {schema}.receipts_{slot} as r
                              where r.receipt_id = a.receipt_id and r.nonce = a.nonce
                                and r.receipt_id between v_low and v_high) then 0
                else a.mask end,
           case when h.receipt_id is null and exists (
                     select from {schema}.receipts_{slot} as r
                      where r.receipt_id = a.receipt_id and r.nonce = a.nonce
                        and r.receipt_id between v_low and v_high) then a.mask
                else 0 end
      from asked as a
      left join held as h on h.receipt_id = a.receipt_id and h.nonce = a.nonce;
end
$$;
