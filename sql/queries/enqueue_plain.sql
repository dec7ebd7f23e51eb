-- Put one job in that needs no more than this -> its id.
select {schema}.enqueue(
    %(kind)s::text, %(args)s::json, %(queue)s::text, %(priority)s::int, %(max_attempts)s::int) as job_id
