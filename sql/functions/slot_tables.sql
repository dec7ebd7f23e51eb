-- slot_tables(slot) -> the partitions of a slot, which live and die together. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.slot_tables(p_slot int) returns setof regclass
language sql stable
as $$
    select format('%I.%I', {schema_name}, u.name || '_' || p_slot)::regclass
    from unnest(array['jobs_ready', 'receipts', 'completions', 'tombstones', 'cursors', 'cursor_windows']) as u(name)
$$;
