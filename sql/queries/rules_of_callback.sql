-- Lock an open callback -> job, number of the callback, state, its rules or null.
select job_id, number, state, rules::text
from {schema}.rules_of_callback(%(callback)s::text)
