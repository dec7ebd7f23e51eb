-- Move the time-out of a callback -> job, number of the callback, the new instant.
select job_id, number, until
from {schema}.heartbeat_callback(%(callback)s::text, %(timeout_s)s::float8)
