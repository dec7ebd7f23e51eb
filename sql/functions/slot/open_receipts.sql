-- open_receipts_{slot}(from) -> the receipts of slot {slot}, from that id on, with a clear bit.
-- Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement: one SELECT, no SET clause.
create or replace function {schema}.open_receipts_{slot}(p_from bigint)
returns table(
    slot int, receipt_id bigint, nonce bigint, queue text, open_mask bigint, runtime_id uuid, request_id bigint,
    claimed_at timestamptz, job_ids bigint[], leases bigint[])
language sql stable
as $$
    select
        {slot}, c.receipt_id, c.nonce, c.queue, ~c.closed & (9223372036854775807 >> (63 - c.n)), c.runtime_id,
        c.request_id, c.claimed_at, c.job_ids, c.leases
    from {schema}.receipts_{slot} as c
    where c.receipt_id >= p_from and c.closed <> (9223372036854775807 >> (63 - c.n))
$$;
