-- Complete a moved attempt in the caller's transaction -> completed or stale.
select {schema}.complete_leased(%(receipt_id)s::bigint, %(nonce)s::bigint, %(index)s::int, %(job_id)s::bigint, %(run_lease)s::bigint)
