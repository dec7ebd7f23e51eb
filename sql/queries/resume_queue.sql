-- Let claims of a queue go on; `known`: also of one that nothing knows yet.
select {schema}.resume_queue(%(queue)s::text, %(known)s::boolean)
