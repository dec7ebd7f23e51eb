-- Delete one page of dead jobs for good -> a row per job.
select job_id, died_at, status, detail
from {schema}.purge_dead(
    %(ids)s::bigint[], %(kind)s::text, %(queue)s::text, %(tag)s::text, %(reason)s::text, %(after)s::timestamptz,
    %(before)s::timestamptz, %(from_at)s::timestamptz, %(from_id)s::bigint, %(limit)s::int)
