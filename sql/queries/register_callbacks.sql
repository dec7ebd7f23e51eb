-- Give running attempts a callback each -> (item, done | stale | waiting | busy | invalid, id, number).
select item, status, callback_id, number
from {schema}.register_callbacks(%(items)s::json)
