-- Cancel the job that holds a unique key -> its id or null, and whether the caller evaluates what its app registered for that.
select c.job_id, c.told from {schema}.cancel_by_key_told(%(key)s::bytea, %(kinds)s::text[], %(owed)s::text[]) as c
