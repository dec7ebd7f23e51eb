-- args_fit(json) -> boolean: whether args are an object of at most 8 MiB that holds only text and numbers
-- every reader can, in 64 levels.
-- Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement: one SELECT, no SET clause.
create or replace function {schema}.args_fit(p_args json) returns boolean
language sql stable
as $$
    select coalesce(
        json_typeof(p_args) = 'object'
        and octet_length(p_args::text) <= 8388608
        and (strpos(p_args::text, e'\\u') = 0 or {schema}.json_is_exact(p_args))
        and {schema}.numbers_fit(p_args)
        and (octet_length(p_args::text) < 130 or {schema}.levels_fit(p_args)),
        false)
$$;
