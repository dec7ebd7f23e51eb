-- Wake dispatchers that wait for these queues; silent when nobody waits.
select {schema}.notify_waiters(%(queues)s::text[])
