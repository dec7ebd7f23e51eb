-- End the attempts whose callback was not answered in time -> how many, the seconds until the next is due, and what became of the jobs.
select expired, next_due_s, failed, cancelled, jobs
from {schema}.expire_callbacks(%(limit)s::int)
