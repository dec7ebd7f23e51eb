-- What a draining pool has before it (counts are capped: enough to tell none from some).
select available, running, later, parked
from {schema}.work_left(%(queues)s::text[])
