-- rebase_needed() -> why nothing may be claimed in this database before a rebase, or null. A few probes: asked with every
-- heartbeat and every renewal of the leadership, as behind a pooler a connection outlives a change of the cluster.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.rebase_needed() returns text
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    made_in bigint := (select m.system_identifier from meta as m);
    here bigint := (select c.system_identifier from pg_control_system() as c);
    newest record;
begin
    if made_in is distinct from here then
        return format('was made in another PostgreSQL cluster (system identifier %s, here %s)', made_in, here);
    end if;
    select w.window_id, pg_snapshot_xmax(w.cur) as beyond into newest
      from cursor_windows as w order by w.window_id desc limit 1;
    if newest.window_id > coalesce(pg_sequence_last_value('{schema_text}.window_id_seq'::regclass), 0) then
        return 'has sequences that stand behind its rows, as after a logical copy';
    end if;
    if newest.beyond > pg_snapshot_xmax(pg_current_snapshot()) then
        return 'knows transactions that this cluster has not reached, as after a restore into a clone';
    end if;
    return null;
end
$$;
