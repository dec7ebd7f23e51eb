-- The names of all queues with settings, work or history.
select queue
from {schema}.known_queues() as k(queue)
order by queue
