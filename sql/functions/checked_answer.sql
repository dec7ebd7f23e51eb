-- checked_answer(payload) -> the payload of an answer, JSON null for none. Guard: none. Locks: none.
-- Errors: AW001 for one over 1 MiB, with text that cannot be stored, with a number that its reader would
-- take for another or not at all, or nested deeper than 64 levels.
create or replace function {schema}.checked_answer(p_payload json) returns json
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    if octet_length(p_payload::text) > 1048576 then
        perform refuse_request('', 'payload: at most 1048576 bytes of JSON');
    elsif strpos(p_payload::text, e'\\u') > 0 and not json_is_exact(p_payload) then
        perform refuse_request('', 'payload: a NUL character or a lone surrogate cannot be stored');
    elsif not numbers_fit(p_payload) then
        perform refuse_request(
            '', 'payload: an integer does not fit 64 bits, signed, or a number is beyond what a float holds');
    elsif not levels_fit(p_payload) then
        perform refuse_request('', 'payload: nested deeper than 64 levels');
    end if;
    return coalesce(p_payload, 'null'::json);
end
$$;
