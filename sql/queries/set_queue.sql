-- Change the settings of a queue that are given -> all of them.
select queue, paused_at, deadline_s, dlq, dlq_retention_s
from {schema}.set_queue(%(queue)s::text, %(settings)s::jsonb)
