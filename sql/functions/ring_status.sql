-- ring_status() -> a row per slot that is not free, oldest first: its state, for how long it has been in it, its size, and what
-- keeps it from the next one: held_by null (nothing: its turn has not come), 'open_transaction', 'paused_queue', 'waiting_jobs',
-- 'running_job' (a sealed slot) or 'in_use' (an exhausted one that sessions read), told in words, with the time since when.
-- A sealed slot is exhausted when every transaction older than its sealing has ended, everything in it is claimed and every
-- attempt has ended; attempts older than a minute are moved away by then. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.ring_status()
returns table(slot int, state text, state_s float8, bytes bigint, held_by text, told text, held_s float8)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    s record;
    v_xmin xid8 := pg_snapshot_xmin(pg_current_snapshot());
    v_since timestamptz;
begin
    for s in select t.* from slots as t where t.state <> 'free' order by t.generation loop
        slot := s.slot; state := s.state; held_by := null; told := null; v_since := null;
        state_s := extract(epoch from clock_timestamp()
                           - case s.state when 'current' then s.opened_at when 'sealed' then s.sealed_at else s.exhausted_at end);
        bytes := slot_bytes(s.slot);
        if s.state = 'sealed' and s.sealed_xid >= v_xmin then
            held_by := 'open_transaction';
            select o.told, o.since into told, v_since from oldest_transaction() as o;
            told := coalesce(told, 'open transaction of a session that this role may not see');
        elsif s.state = 'sealed' then
            select h.held_by, h.told, h.since into held_by, told, v_since from slot_holder(s.slot) as h;
        elsif s.state = 'exhausted' then
            select u.told, u.since into told, v_since from slot_user(s.slot) as u;
            held_by := case when told is not null then 'in_use' end;
        end if;
        held_s := case when held_by is not null then extract(epoch from clock_timestamp() - coalesce(v_since, s.sealed_at)) end;
        return next;
    end loop;
end
$$;
