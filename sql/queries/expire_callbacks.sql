-- End the attempts whose callback was not answered in time -> how many, and the seconds until the next is due.
select expired, next_due_s
from {schema}.expire_callbacks(%(limit)s::int)
