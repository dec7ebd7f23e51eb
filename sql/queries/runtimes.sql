-- Every runtime that was seen lately.
select runtime_id, host, pid, state, started_at, heartbeat_at, heartbeat_age_s, info
from {schema}.runtimes_view
order by started_at, runtime_id
