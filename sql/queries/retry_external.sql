-- Answer a callback: the job runs again from the top -> job, number of the callback, state.
select job_id, number, state
from {schema}.retry_external(%(callback)s::text)
