-- For tests of apps: what waits in these queues is due now.
update {schema}.jobs_deferred set run_at = pg_catalog.now()
where queue = any(%(queues)s::text[]) and run_at > pg_catalog.now()
