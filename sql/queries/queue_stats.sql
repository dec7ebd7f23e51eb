-- Jobs per queue and state; queues beyond the cap are marked by counts_are_capped.
select
    queue, available, running, scheduled, retryable, failed, cancelled, completed,
    oldest_available_s, paused, counts_are_capped
from {schema}.queue_stats()
order by queue
