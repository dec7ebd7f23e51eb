-- levels_fit(json) -> boolean: whether it is nested at most 64 levels deep; readers give up on more than about a thousand.
-- Guard: none. Locks: none. Errors: none. Counting brackets, those in texts too, spares nearly all documents the closer look.
create or replace function {schema}.levels_fit(p_document json) returns boolean
language plpgsql immutable parallel unsafe
set search_path = pg_catalog, pg_temp
as $$
begin
    return p_document is null
        or octet_length(p_document::text)
            - octet_length(replace(replace(p_document::text, '[', ''), '{', '')) <= 64
        or not jsonb_path_exists(
            p_document::jsonb, 'strict $.**{64 to last} ? (@.type() == "object" || @.type() == "array")');
exception
    when statement_too_complex then
        return false;
    when numeric_value_out_of_range or untranslatable_character or invalid_text_representation then
        return true;  -- what jsonb cannot hold is looked at by others
end
$$;
