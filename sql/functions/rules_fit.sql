-- rules_fit(rules) -> whether these are rules of a callback: an object whose names are filter, on_complete, on_fail or transform, and whose
-- values are texts of at most 4096 bytes. What they say is for whoever evaluates them. Null: null.
-- Guard: none. Locks: none. Errors: class 22 for text that cannot be stored.
create or replace function {schema}.rules_fit(p_rules json) returns boolean
language sql immutable strict
set search_path = {schema}, pg_catalog, pg_temp
as $$
    select case
        when json_typeof(p_rules) <> 'object' then false
        else not exists (
            select
            from json_each(p_rules) as r
            where r.key not in ('filter', 'on_complete', 'on_fail', 'transform') or json_typeof(r.value) <> 'string'
                or octet_length(r.value #>> '{}') > 4096)
    end
$$;
