-- Announce a host's runtime.
select {schema}.register_runtime(%(runtime_id)s::uuid, %(host)s::text, %(pid)s::int, %(info)s::jsonb)
