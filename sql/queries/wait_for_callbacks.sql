-- Begin to wait, or ask whether to wait on -> (item, waiting | answered | refused | stale | busy | invalid, number, payload).
select item, status, number, payload::text
from {schema}.wait_for_callbacks(%(items)s::json)
