-- Give the leadership up, if held.
select {schema}.step_down(%(name)s::text, %(holder)s::uuid)
