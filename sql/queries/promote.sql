-- Make due jobs available -> how many, and the seconds until the next is due (null: none).
select promoted, next_due_s
from {schema}.promote(%(limit)s::int)
