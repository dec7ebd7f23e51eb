-- What every new connection checks: the schema's version and engine, the oldest version whose release may work on it (older
-- schemas do not say: their own), and the cluster it was made in against this one.
select
    m.version, m.engine, m.system_identifier,
    (select c.system_identifier from pg_catalog.pg_control_system() as c) as cluster_identifier,
    coalesce((to_jsonb(m) ->> 'works_from')::int, m.version) as works_from
from {schema}.meta as m
