-- yielding_<slot>(receipts, nonces, masks) -> the attempts among these, still open, whose completion changes who holds their
-- job's unique key. Locks: none. Errors: none.
create or replace function {schema}.yielding_{slot}(p_receipts bigint[], p_nonces bigint[], p_masks bigint[])
returns table(receipt_id bigint, nonce bigint, idx int, job_id bigint, run_lease bigint)
language plpgsql volatile
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    return query
    select w.receipt_id, w.nonce, i.idx, r.job_ids[i.idx + 1], coalesce(r.leases[i.idx + 1], 1)
    from (
        select u.receipt_id, u.nonce, bit_or(u.mask) as mask
        from unnest(p_receipts, p_nonces, p_masks) as u(receipt_id, nonce, mask)
        group by u.receipt_id, u.nonce
    ) as w
    cross join lateral (
        select r.job_ids, r.leases, r.yields & w.mask as mask, r.n
        from {schema}.receipts_{slot} as r
        where r.receipt_id = w.receipt_id and r.nonce = w.nonce and r.yields is not null
        limit 1
    ) as r
    cross join lateral generate_series(0, r.n - 1) as i(idx)
    where r.mask & (1::bigint << i.idx) <> 0;
end
$$;
