-- For the metrics endpoint: depth and lag per queue, without the history.
select queue, available, running, waiting, scheduled, retryable, dead, oldest_available_s, paused, counts_are_capped
from {schema}.queue_depths()
order by queue
