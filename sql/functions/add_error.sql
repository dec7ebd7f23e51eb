-- add_error(errors, error, attempt) -> errors with one entry more: the newest 20, oldest first, an entry is
-- {error, attempt, at, …}. A large one keeps error, type and traceback, each at most 4096 bytes.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.add_error(p_errors jsonb, p_error jsonb, p_attempt int) returns jsonb
language plpgsql stable parallel unsafe
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_entry jsonb;
    v_kept jsonb := p_errors;
begin
    if p_error is null or jsonb_typeof(p_error) = 'null' then
        return p_errors;
    end if;
    v_entry := case when jsonb_typeof(p_error) = 'object' then p_error else jsonb_build_object('error', p_error) end;
    if octet_length(v_entry::text) > 4096 then
        v_entry := jsonb_strip_nulls(jsonb_build_object(
            'error', clip_text(v_entry ->> 'error', 4096), 'type', clip_text(v_entry ->> 'type', 400),
            'traceback', clip_text(v_entry ->> 'traceback', 4096)));
    end if;
    v_entry := v_entry || jsonb_build_object('attempt', p_attempt, 'at', clock_timestamp());
    if jsonb_typeof(v_kept) is distinct from 'array' then
        v_kept := '[]';
    end if;
    while jsonb_array_length(v_kept) >= 20 loop
        v_kept := v_kept - 0;
    end loop;
    return v_kept || jsonb_build_array(v_entry);
end
$$;
