-- refuse_request(prefix, flaw) -> never returns. Text as result so that it can stand where a value is wanted.
-- Errors: AW001 with the path in the detail ("jobs[7].priority").
create or replace function {schema}.refuse_request(p_prefix text, p_flaw text) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'AW001',
        message = p_prefix || coalesce(p_flaw, 'cannot be accepted'),
        detail = p_prefix || split_part(coalesce(p_flaw, ''), ':', 1);
end
$$;
