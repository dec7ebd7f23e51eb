-- Does this attempt stand in leases -> held, ended or unknown; and the transaction that asks, which completing has to be done in.
select
    {schema}.find_lease(
        %(receipt_id)s::bigint, %(nonce)s::bigint, %(index)s::int, %(job_id)s::bigint, %(run_lease)s::bigint),
    pg_catalog.pg_current_xact_id()::text as xid
