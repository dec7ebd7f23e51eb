-- Answer a callback: the job is completed, or goes on -> job, number of the callback, state.
select job_id, number, state
from {schema}.complete_external(%(callback)s::text, %(payload)s::json, %(resume)s::boolean)
