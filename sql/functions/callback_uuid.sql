-- callback_uuid(text) -> the id of a callback, or null for text that is none: it is an id that nobody gave out.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.callback_uuid(p_text text) returns uuid
language sql immutable
as $$
    select case when p_text ~* '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' then p_text::uuid end
$$;
