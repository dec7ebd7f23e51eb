-- Move these jobs into the dead letter queue -> a row per job.
select job_id, null::timestamptz as died_at, status, detail
from {schema}.move_ids_to_dead(%(ids)s::bigint[], %(why)s::text)
