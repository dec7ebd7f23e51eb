-- Keep a runtime alive -> alive, or gone when it was rescued or is unknown.
select {schema}.heartbeat(%(runtime_id)s::uuid, %(info)s::jsonb) as verdict
