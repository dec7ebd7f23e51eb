-- End what runtimes without a heartbeat still hold -> a row per rescued runtime.
select runtime_id, attempts, failed, cancelled, jobs
from {schema}.rescue_stale(%(stale_s)s::float8, %(limit)s::int, %(connected_s)s::float8)
