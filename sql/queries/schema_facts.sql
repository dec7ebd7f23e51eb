-- What every new connection checks: the schema's version and engine, the oldest version whose release may work on it (older
-- schemas do not say: their own), and the cluster it was made in against this one. A server process other than the one that
-- was announced at the start means that a pooler stands between. Whether this role may act as the owner of the tables. Then the settings in force that no statement of ours can do without,
-- and who would have to be given others: role and database, quoted.
select
    m.version, m.engine, m.system_identifier,
    (select c.system_identifier from pg_catalog.pg_control_system() as c) as cluster_identifier,
    coalesce((to_jsonb(m) ->> 'works_from')::int, m.version) as works_from,
    pg_catalog.pg_backend_pid() as backend_pid,
    pg_catalog.current_setting('server_encoding') as server_encoding,
    pg_catalog.current_setting('client_encoding') as client_encoding,
    pg_catalog.current_setting('transaction_isolation') as isolation,
    pg_catalog.quote_ident(session_user) as role,
    pg_catalog.quote_ident(pg_catalog.current_database()) as database,
    pg_catalog.pg_has_role(t.relowner, 'usage') as owns,
    pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(t.relowner)) as owner
from {schema}.meta as m
join pg_catalog.pg_class as t on t.oid = m.tableoid
