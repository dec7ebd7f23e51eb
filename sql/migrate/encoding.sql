-- In which encoding this database holds text, and its name, quoted.
select pg_catalog.current_setting('server_encoding'), pg_catalog.quote_ident(pg_catalog.current_database())
