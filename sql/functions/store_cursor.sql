-- store_cursor(slot, queue, priority, prev, cur) -> nothing: append a cursor at the start of a new window.
-- The caller holds the lane's lock. Errors: none.
create or replace function {schema}.store_cursor(
    p_slot int, p_queue text, p_priority int, p_prev pg_snapshot, p_cur pg_snapshot
) returns void
language plpgsql volatile
as $$
begin
    with window_row as (
        insert into {schema}.cursor_windows (slot, prev, cur) values (p_slot, p_prev, p_cur) returning window_id
    )
    insert into {schema}.cursors (slot, queue, priority, window_id, txid, job_id)
    select p_slot, p_queue, p_priority, w.window_id, '0'::xid8, 0 from window_row as w;
end
$$;
