-- metadata_flaw(json) -> text: what is wrong with a job's metadata, or null.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.metadata_flaw(p_metadata json) returns text
language plpgsql immutable parallel unsafe
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_key text;
begin
    if json_typeof(p_metadata) <> 'object' then
        return 'must be an object, not ' || json_typeof(p_metadata);
    end if;
    if octet_length(p_metadata::text) > 65536 then
        return format('has %s bytes; at most 65536 are allowed', octet_length(p_metadata::text));
    end if;
    if strpos(p_metadata::text, e'\\u') > 0 and not json_is_exact(p_metadata) then
        return 'holds a NUL or half a surrogate pair';
    end if;
    if not numbers_fit(p_metadata) then
        return 'holds an integer that does not fit 64 bits, signed, or a number beyond what a float holds';
    end if;
    if not levels_fit(p_metadata) then
        return 'is nested deeper than 64 levels';
    end if;
    select k into v_key from json_object_keys(p_metadata) as k where starts_with(k, 'awa:') limit 1;
    if found then
        return format('key %s: names that start with "awa:" belong to the queue', to_json(v_key));
    end if;
    return null;
end
$$;
