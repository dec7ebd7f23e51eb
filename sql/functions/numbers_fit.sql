-- numbers_fit(json) -> boolean: as each_number_fits, which looks only at documents with 19 digits in a row or an exponent of three.
-- Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement: one SELECT, no SET clause.
create or replace function {schema}.numbers_fit(p_document json) returns boolean
language sql stable
as $$
    select p_document::text !~ e'\\d{19}|[eE]\\+?\\d{3}' or {schema}.each_number_fits(p_document)
$$;
