-- Put many jobs in, all or none -> their ids in order.
select {schema}.enqueue_many(%(jobs)s::json) as job_ids
