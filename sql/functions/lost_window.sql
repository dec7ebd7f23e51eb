-- lost_window() -> which lane's newest cursor has no window any more, in words, or null: rows of these tables were deleted by hand, or a
-- copy is not whole. What is unclaimed there is known from receipts and tombstones only, as after a restore.
-- Reads every cursor; for housekeeping only. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.lost_window() returns text
language sql stable
as $$
    select format('queue %s has lost what its claims in slot %s have written', n.queue, n.slot)
    from (
        select distinct on (k.slot, k.queue, k.priority) k.slot, k.queue, k.window_id
        from {schema}.cursors as k
        order by k.slot, k.queue, k.priority, k.seq desc
    ) as n
    where not exists (
        select from {schema}.cursor_windows as w where w.slot = n.slot and w.window_id = n.window_id)
    limit 1
$$;
