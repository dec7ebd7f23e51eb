-- Put many jobs in, all or none -> their ids in order. The client has made sure that numbers are exact.
select {schema}.enqueue_many(%(jobs)s::json, true) as job_ids
