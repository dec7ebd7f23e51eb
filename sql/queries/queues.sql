-- Every queue that has settings or work, and whether it is paused.
select queue, paused, paused_at, waiting
from {schema}.queues_view
order by queue
