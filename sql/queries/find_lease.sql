-- Does this attempt stand in leases -> held, ended or unknown.
select {schema}.find_lease(%(receipt_id)s::bigint, %(nonce)s::bigint, %(index)s::int, %(job_id)s::bigint, %(run_lease)s::bigint)
