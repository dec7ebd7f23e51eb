-- refuse_foreign_xids() -> nothing. What nobody may decide about a slot by cursors of another cluster: new rows would look
-- claimed and be pruned. Reads every window, and probes each lane of the current and the sealed slots for rows of
-- transactions that cannot be this cluster's; for housekeeping only. Guard: none. Locks: none. Errors: AW003.
create or replace function {schema}.refuse_foreign_xids() returns void
language plpgsql volatile
as $$
declare
    v_slot int;
    v_foreign boolean;
begin
    perform {schema}.check_cluster();
    v_foreign := exists (
        select from {schema}.cursor_windows as w
         where pg_snapshot_xmax(w.cur) > pg_snapshot_xmax(pg_current_snapshot()));
    for v_slot in select s.slot from {schema}.slots as s where s.state in ('current', 'sealed') loop
        exit when v_foreign;
        execute format('select {schema}.foreign_rows_%s()', v_slot) into v_foreign;
    end loop;
    if v_foreign then
        raise exception 'schema % knows transactions that this cluster has not reached, as after a restore into a clone: run `awa-pool rebase`',
            {schema_name} using errcode = 'AW003';
    end if;
end
$$;
