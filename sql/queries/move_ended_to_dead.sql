-- Move one page of failed or cancelled jobs of the history into the dead letter queue -> a row per job.
select job_id, null::timestamptz as died_at, status, detail
from {schema}.move_ended_to_dead(
    %(state)s::text, %(kind)s::text, %(queue)s::text, %(tag)s::text, %(reason)s::text, %(after)s::timestamptz,
    %(before)s::timestamptz, %(from_id)s::bigint, %(limit)s::int, %(why)s::text)
