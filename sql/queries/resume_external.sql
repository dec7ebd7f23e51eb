-- Answer a callback: the job goes on -> job, number of the callback, state.
select job_id, number, state
from {schema}.resume_external(%(callback)s::text, %(payload)s::json)
