-- What is there: (relations in the schema, whether meta is among them, this cluster's system identifier).
select (select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = {schema_name}),
       to_regclass('{schema_text}.meta') is not null,
       (select system_identifier from pg_control_system())
