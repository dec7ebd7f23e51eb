-- Complete a moved attempt in the caller's transaction -> completed or stale; moved: it is another than find_lease was asked in.
select case
    when pg_catalog.pg_current_xact_id()::text = %(xid)s::text then {schema}.complete_leased(
        %(receipt_id)s::bigint, %(nonce)s::bigint, %(index)s::int, %(job_id)s::bigint, %(run_lease)s::bigint)
    else 'moved'
end as answer
