-- Put one job in -> its id.
select {schema}.enqueue(
    %(kind)s::text, %(args)s::json, %(queue)s::text, %(priority)s::int, %(max_attempts)s::int,
    %(run_at)s::timestamptz, %(metadata)s::json, %(tags)s::text[], %(ordering_key)s::text,
    %(deadline_s)s::float8) as job_id
