-- rotate(min_age_s, max_bytes) -> 'sealed S, opened T' or why not: 'busy', 'empty', 'young', 'full'.
-- Arrow: current -> sealed, free -> current, once the current slot is older than min_age_s or its bodies larger than
-- max_bytes (null: no such bound). The sequence moves at once and for everybody: should this transaction fail after
-- it, rows land in a slot still called free until the sweep, which finds them and sets the sequence back.
-- Locks: the ring (try). Errors: AW002.
create or replace function {schema}.rotate(p_min_age_s float8, p_max_bytes bigint) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_old slots;
    v_new smallint;
    v_used boolean;
begin
    perform require_read_committed('rotate');
    if not try_ring_lock() then
        return 'busy';
    end if;
    select * into v_old from slots as s where s.state = 'current';
    execute format('select exists (select from %I)', 'jobs_ready_' || v_old.slot) into v_used;
    if not v_used then
        return 'empty';
    end if;
    if v_old.opened_at > clock_timestamp() - make_interval(secs => coalesce(p_min_age_s, 0))
        and slot_bytes(v_old.slot) < coalesce(p_max_bytes, 9223372036854775807) then
        return 'young';
    end if;
    v_new := (select s.slot from slots as s where s.state = 'free' order by s.generation, s.slot limit 1);
    if v_new is null then
        return 'full';
    end if;
    update slots set state = 'sealed', sealed_at = clock_timestamp(), sealed_xid = null where slot = v_old.slot;
    update slots
       set state = 'current', generation = v_old.generation + 1, opened_at = clock_timestamp(), sealed_at = null,
           sealed_xid = null, exhausted_at = null, open_from = 0
     where slot = v_new;
    perform setval('{schema_text}.current_slot', v_new);
    return format('sealed %s, opened %s', v_old.slot, v_new);
end
$$;
