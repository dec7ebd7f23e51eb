-- queues_view: every queue with settings, work or history, its settings, and whether a dispatcher waits for it.
create or replace view {schema}.queues_view as
select
    k.queue, q.paused_at is not null as paused, q.paused_at,
    exists (select from {schema}.queue_waiters as w where w.queue = k.queue and w.until > clock_timestamp()) as waiting,
    q.deadline_s, coalesce(q.dlq, true) as dlq, q.dlq_retention_s
from {schema}.known_queues() as k(queue)
left join {schema}.queues as q on q.queue = k.queue;
