-- Answer a callback, what that means being open -> job, number of the callback, state, what was done.
select job_id, number, state, action
from {schema}.resolve_callback(%(callback)s::text, %(payload)s::json, %(default_action)s::text)
