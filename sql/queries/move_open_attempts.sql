-- Move what holds up the oldest slots out of the ring -> what was done.
select {schema}.move_open_attempts(%(limit)s::int) as done
