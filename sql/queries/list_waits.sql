-- The jobs whose callback times out first -> job_id, kind, number, since, until.
select job_id, kind, number, since, until
from {schema}.list_waits(%(limit)s::int)
