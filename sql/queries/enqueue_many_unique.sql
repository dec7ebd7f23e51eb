-- Put many jobs in, some of them unique -> their ids in order, and how many are those of holders.
select u.job_ids, u.skipped from {schema}.enqueue_many_unique(%(jobs)s::json, %(on_conflict)s::text) as u
