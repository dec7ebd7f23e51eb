-- During a call, look so often whether the client is still there.
select pg_catalog.set_config('client_connection_check_interval', %(every_ms)s, false)
