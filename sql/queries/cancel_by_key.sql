-- Cancel the job that holds a unique key -> its id, or null.
select {schema}.cancel_by_key(%(key)s::bytea) as job_id
