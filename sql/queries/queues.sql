-- Every queue that has settings or work, its settings, and whether it is paused.
select queue, paused, paused_at, waiting, deadline_s, dlq, dlq_retention_s
from {schema}.queues_view
order by queue
