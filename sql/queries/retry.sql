-- Make a failed, cancelled, retryable or scheduled job available now -> its new state.
select {schema}.retry(%(job_id)s::bigint) as state
