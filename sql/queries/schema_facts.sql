-- What every new connection checks: the schema's version and engine, and the cluster it was made in against this one.
select
    m.version, m.engine, m.system_identifier,
    (select c.system_identifier from pg_catalog.pg_control_system() as c) as cluster_identifier
from {schema}.meta as m
