-- What every new connection checks: the schema's version and engine, the oldest version whose release may work on it (older
-- schemas do not say: their own), and the cluster it was made in against this one. A server process other than the one that
-- was announced at the start means that a pooler stands between.
select
    m.version, m.engine, m.system_identifier,
    (select c.system_identifier from pg_catalog.pg_control_system() as c) as cluster_identifier,
    coalesce((to_jsonb(m) ->> 'works_from')::int, m.version) as works_from,
    pg_catalog.pg_backend_pid() as backend_pid
from {schema}.meta as m
