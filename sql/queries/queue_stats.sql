-- Jobs per queue and state; counts_are_capped marks estimates and counts at their cap.
select
    queue, available, running, waiting, scheduled, retryable, failed, cancelled, completed, dead,
    oldest_available_s, paused, counts_are_capped
from {schema}.queue_stats()
order by queue
