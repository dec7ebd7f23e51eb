-- Move one job that does not run into the dead letter queue -> its new state.
select {schema}.move_to_dead(%(job_id)s::bigint, %(why)s::text) as state
