-- The unique key of a job.
select k.unique_key, k.states, k.holder, k.release_at from {schema}.key_state(%(job_id)s::bigint) as k
