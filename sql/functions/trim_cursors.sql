-- trim_cursors() -> 'dropped N cursors, M windows': rows that a newer one of the same lane has replaced, and windows
-- that no cursor left refers to. A claim under way reads the newest committed cursor, which stays.
-- Locks: the rows deleted. Errors: none.
create or replace function {schema}.trim_cursors() returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_cursors int;
    v_windows int;
begin
    if not pg_try_advisory_xact_lock(1635202372, hashtext({schema_name})) then
        return 'busy';
    end if;
    -- One snapshot for both: a window is dropped if nothing kept refers to it in the same view of the table, and
    -- a claim not yet visible refers to the window of the newest cursor, which is kept, or to one of its own.
    with newest as materialized (
        select k.slot, k.queue, k.priority, max(k.seq) as seq from cursors as k group by 1, 2, 3
    ), kept as materialized (
        select k.window_id from cursors as k
          join newest as n on n.slot = k.slot and n.queue = k.queue and n.priority = k.priority and n.seq = k.seq
    ), dropped_cursors as (
        delete from cursors as k using newest as n
         where n.slot = k.slot and n.queue = k.queue and n.priority = k.priority and k.seq < n.seq
        returning 1
    ), dropped_windows as (
        delete from cursor_windows as w where not exists (select from kept where kept.window_id = w.window_id)
        returning 1
    )
    select (select count(*) from dropped_cursors), (select count(*) from dropped_windows) into v_cursors, v_windows;
    return format('dropped %s cursors, %s windows', v_cursors, v_windows);
end
$$;
