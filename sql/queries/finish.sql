-- End attempts with any outcome -> (item index, done | stale | busy | invalid, the job's state after it).
select item, status, state
from {schema}.finish(%(items)s::json)
