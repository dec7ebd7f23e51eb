-- The version now installed, and the oldest release that may still work on it; the identifier is written once and changed
-- only on request.
insert into {schema}.meta (version, works_from, system_identifier)
    select {to_version}, {works_from}, system_identifier from pg_control_system()
    on conflict (one) do update set version = excluded.version, works_from = excluded.works_from
