-- Stop claims of a queue; `known`: also of one that nothing knows yet.
select {schema}.pause_queue(%(queue)s::text, %(known)s::boolean)
