-- Stop claims of a queue.
select {schema}.pause_queue(%(queue)s::text)
