-- The server process that answers; another than was announced at the start means that a pooler stands between.
select pg_catalog.pg_backend_pid() as pid
