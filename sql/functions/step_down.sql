-- step_down(name, holder) -> nothing: gives the leadership up, so that another takes it without waiting for the expiry.
-- Guard: held by this holder. Locks: the name's row. Errors: none.
create or replace function {schema}.step_down(p_name text, p_holder uuid) returns void
language sql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
    delete from leader where name = p_name and holder = p_holder
$$;
