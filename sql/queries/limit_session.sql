-- No call of this session goes on for longer; the caller waits a little longer than that.
select pg_catalog.set_config('statement_timeout', %(limit_ms)s, false)
