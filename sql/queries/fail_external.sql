-- Answer a callback: the job has failed -> job, number of the callback, state.
select job_id, number, state
from {schema}.fail_external(%(callback)s::text, %(error)s::text)
