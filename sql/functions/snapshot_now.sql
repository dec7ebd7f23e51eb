-- snapshot_now() -> the current snapshot, with this transaction's own xid among those in progress.
-- A backend's xid is never in its own snapshot's xip: without it, a row this transaction has yet to write would
-- count as seen once the snapshot is stored. Errors: none.
create or replace function {schema}.snapshot_now() returns pg_snapshot
language plpgsql volatile
as $$
declare
    taken pg_snapshot := pg_current_snapshot();
    own xid8 := pg_current_xact_id_if_assigned();
begin
    if own is null or own >= pg_snapshot_xmax(taken) then
        return taken;
    end if;
    return (pg_snapshot_xmin(taken)::text || ':' || pg_snapshot_xmax(taken)::text || ':' ||
            (select string_agg(x::text, ',' order by x)
               from (select pg_snapshot_xip(taken) as x union select own) as open_xids))::pg_snapshot;
end
$$;
