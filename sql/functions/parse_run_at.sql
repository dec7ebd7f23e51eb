-- parse_run_at(text) -> timestamptz, or null when it is no ISO 8601 time with a zone or lies outside the years 1 to 9999.
-- Guard: none. Locks: none. Errors: none. A time without a zone would mean another instant in every session.
create or replace function {schema}.parse_run_at(p_text text) returns timestamptz
language plpgsql stable parallel unsafe
set search_path = {schema}, pg_catalog, pg_temp
set datestyle = 'ISO, YMD'
as $$
declare
    v_at timestamptz;
begin
    if p_text !~ e'^\\d{4,}-\\d\\d-\\d\\d[T ]\\d\\d:\\d\\d(:\\d\\d([.,]\\d+)?)?\\s*([zZ]|[+-]\\d\\d(:?\\d\\d)?)$' then
        return null;
    end if;
    v_at := p_text::timestamptz;
    return case when run_at_flaw(v_at) is null then v_at end;
exception
    when data_exception then
        return null;
end
$$;
