-- No call of this session goes on for longer; the caller waits a little longer than that. A session may rest for as long as it likes,
-- whatever its role was told of idle ones.
select pg_catalog.set_config('statement_timeout', %(limit_ms)s, false), pg_catalog.set_config('idle_session_timeout', '0', false)
