-- Begin to wait, or ask whether to wait on -> (item, waiting | answered | refused | stale | busy | invalid, number, payload, why).
select item, status, number, payload::text, why
from {schema}.wait_for_callbacks(%(items)s::json)
