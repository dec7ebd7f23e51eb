-- Answer a callback -> job, number of the callback, state, and whether the caller evaluates what its app registered for that.
select job_id, number, state, told
from {schema}.answer_told(
    %(callback)s::text, %(action)s::text, %(payload)s::json, %(error)s::text, %(kinds)s::text[], %(owed)s::text[])
