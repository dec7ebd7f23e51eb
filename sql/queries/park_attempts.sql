-- Let jobs wait without a handler -> (item, done | refused | stale | busy | invalid, the job's state after it).
select item, status, state
from {schema}.park_attempts(%(items)s::json)
