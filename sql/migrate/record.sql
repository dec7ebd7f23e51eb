-- The version now installed; the identifier is written once and changed only on request.
insert into {schema}.meta (version, system_identifier)
    select {to_version}, system_identifier from pg_control_system()
    on conflict (one) do update set version = excluded.version
