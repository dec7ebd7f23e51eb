-- Cancel a job -> its id, and whether the caller evaluates what its app registered for that.
select c.job_id, c.told from {schema}.cancel_told(%(job_id)s::bigint, %(kinds)s::text[], %(owed)s::text[]) as c
