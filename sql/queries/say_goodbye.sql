-- A runtime ends by its own will; what it still held is ended at the next rescue, without waiting for the threshold.
select {schema}.say_goodbye(%(runtime_id)s::uuid)
