select version, engine, system_identifier from {schema}.meta
