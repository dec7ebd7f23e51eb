-- heartbeat(runtime, info) -> 'alive', or 'gone' when the runtime was rescued or is unknown: then its attempts are no longer
-- its own, and it has to take a new id.
-- Guard: state alive. Locks: the runtime's row. Errors: AW003, as a restored copy must not look alive.
create or replace function {schema}.heartbeat(p_runtime uuid, p_info jsonb) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    perform check_cluster();
    update runtimes as r
    set heartbeat_at = clock_timestamp(), info = coalesce(p_info, r.info)
    where r.runtime_id = p_runtime and r.state = 'alive';
    return case when found then 'alive' else 'gone' end;
end
$$;
