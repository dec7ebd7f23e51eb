-- say_goodbye(runtime) -> nothing: the next rescue_stale ends what it still holds without waiting for the threshold.
-- Guard: none. Locks: the runtime's row. Errors: none.
create or replace function {schema}.say_goodbye(p_runtime uuid) returns void
language sql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
    update runtimes set state = 'gone', heartbeat_at = clock_timestamp() where runtime_id = p_runtime
$$;
