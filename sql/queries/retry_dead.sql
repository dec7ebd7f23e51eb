-- Give one page of dead jobs all their attempts again -> a row per job.
select job_id, died_at, status, detail
from {schema}.retry_dead(
    %(ids)s::bigint[], %(kind)s::text, %(queue)s::text, %(tag)s::text, %(reason)s::text, %(after)s::timestamptz,
    %(before)s::timestamptz, %(from_at)s::timestamptz, %(from_id)s::bigint, %(limit)s::int,
    %(run_at)s::timestamptz, %(new_priority)s::int, %(new_queue)s::text)
