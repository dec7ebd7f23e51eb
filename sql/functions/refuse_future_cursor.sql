-- refuse_future_cursor(slot, queue) -> never returns: a cursor knows transaction ids this cluster has not reached.
-- Errors: AW003.
create or replace function {schema}.refuse_future_cursor(p_slot int, p_queue text) returns void
language plpgsql stable
as $$
begin
    raise exception 'schema %: queue % has a cursor from the future in slot %: this database was restored or copied into a cluster with lower transaction ids; run `awa-pool rebase`',
        {schema_name}, p_queue, p_slot using errcode = 'AW003';
end
$$;
