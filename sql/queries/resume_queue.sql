-- Let claims of a queue go on.
select {schema}.resume_queue(%(queue)s::text)
