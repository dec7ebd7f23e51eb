-- register_runtime(runtime, host, pid, info) -> nothing. A runtime id is new at every start, so a known one is only refreshed
-- while it lives: one that was rescued stays gone.
-- Guard: state alive. Locks: the runtime's row. Errors: AW003.
create or replace function {schema}.register_runtime(p_runtime uuid, p_host text, p_pid int, p_info jsonb) returns void
language sql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
    select check_cluster();
    insert into runtimes as r (runtime_id, host, pid, started_at, heartbeat_at, info, state)
    values (p_runtime, p_host, p_pid, clock_timestamp(), clock_timestamp(), coalesce(p_info, '{}'), 'alive')
    on conflict (runtime_id) do update
    set host = excluded.host, pid = excluded.pid, heartbeat_at = excluded.heartbeat_at, info = excluded.info
    where r.state = 'alive'
$$;
