-- json_is_exact(json) -> boolean: whether every string in it is text that PostgreSQL and every reader can hold.
-- Guard: none. Locks: none. Errors: none.
--
-- `json` checks the form of \u escapes and no more; `jsonb` refuses NUL and lone surrogates. Asked only about
-- documents that hold an escape at all, as the try costs a subtransaction.
create or replace function {schema}.json_is_exact(p_document json) returns boolean
language plpgsql immutable parallel unsafe
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    perform p_document::jsonb;
    return true;
exception
    when untranslatable_character or invalid_text_representation then
        return false;
    when numeric_value_out_of_range then
        return true;  -- a number jsonb cannot hold; as json it is kept digit by digit
end
$$;
