-- Let the queue go, and say when that was (the clock is read first).
select clock_timestamp(), awa_pool.resume_queue(%(queue)s, true)
