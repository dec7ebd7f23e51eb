-- Transactions of one database so far, ours and the server's own.
select (xact_commit + xact_rollback)::bigint from pg_stat_database where datname = %(database)s
