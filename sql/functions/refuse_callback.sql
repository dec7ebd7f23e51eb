-- refuse_callback(id) -> never returns. Errors: AW008, the same words whatever the reason: an id is all that a sender has to show.
create or replace function {schema}.refuse_callback(p_callback text) returns void
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
begin
    raise exception 'no callback waits for an answer under the id %', left(coalesce(p_callback, ''), 36)
        using errcode = 'AW008';
end
$$;
