-- runtimes_view: every host runtime that was seen lately, with the age of its heartbeat by the database's clock.
create or replace view {schema}.runtimes_view as
select
    r.runtime_id, r.host, r.pid, r.state, r.started_at, r.heartbeat_at,
    extract(epoch from clock_timestamp() - r.heartbeat_at)::float8 as heartbeat_age_s, r.info
from {schema}.runtimes as r;
