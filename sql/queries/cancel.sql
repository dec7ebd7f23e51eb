-- Cancel a job -> its new state.
select {schema}.cancel(%(job_id)s::bigint) as state
