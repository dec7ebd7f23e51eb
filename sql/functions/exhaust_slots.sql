-- exhaust_slots() -> 'exhausted 3, 4' or 'nothing', or 'busy'.
-- Arrow: sealed -> exhausted. A producer takes its xid before it reads which slot is current. So once an xid was taken
-- after the slot was sealed (sealed_xid, by the first call that sees it sealed) and every transaction up to it has
-- ended, nobody is left who could insert there. Then: everything claimed, no receipt open.
-- Locks: the ring (try). Errors: AW002, AW003, XX001.
create or replace function {schema}.exhaust_slots() returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    s record;
    v_done int[] := '{}';
begin
    perform require_read_committed('exhaust_slots');
    perform refuse_foreign_xids();
    perform refuse_lost_window();
    if not try_ring_lock() then
        return 'busy';
    end if;
    if exists (select from slots as t where t.state = 'sealed' and t.sealed_xid is null) then
        update slots set sealed_xid = pg_current_xact_id() where state = 'sealed' and sealed_xid is null;
    end if;
    for s in
        select t.slot from slots as t
         where t.state = 'sealed' and t.sealed_xid < pg_snapshot_xmin(pg_current_snapshot())
         order by t.generation
    loop
        if slot_is_done(s.slot) is null then
            update slots set state = 'exhausted', exhausted_at = clock_timestamp() where slot = s.slot;
            v_done := v_done || s.slot::int;
        end if;
    end loop;
    return case when v_done = '{}' then 'nothing' else 'exhausted ' || array_to_string(v_done, ', ') end;
end
$$;
