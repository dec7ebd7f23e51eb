-- Dead jobs, the newest death first, with filters (null: any); page on with died_at and id of the last one.
select
    id, kind, queue, priority, attempt, max_attempts, created_at, died_at, reason, error, args_preview, args_bytes, tags
from {schema}.list_dead(
    %(kind)s::text, %(queue)s::text, %(tag)s::text, %(reason)s::text, %(after)s::timestamptz,
    %(before)s::timestamptz, %(from_at)s::timestamptz, %(from_id)s::bigint, %(limit)s::int)
