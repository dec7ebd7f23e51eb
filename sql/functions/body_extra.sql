-- body_extra(metadata, tags, snoozes, deadline_s, progress, ordering_key) -> JSON text of those that are set.
-- Built as text: metadata and progress keep their own spelling, nulls inside them included. Errors: none.
create or replace function {schema}.body_extra(
    p_metadata json, p_tags text[], p_snoozes int, p_deadline_s float8, p_progress json, p_ordering_key text
) returns text
language plpgsql stable
as $$
begin
    return '{' || concat_ws(',',
        '"metadata":' || p_metadata::text,
        '"tags":' || to_json(p_tags)::text,
        case when p_snoozes > 0 then '"snoozes":' || p_snoozes end,
        '"deadline_s":' || to_json(p_deadline_s)::text,
        '"progress":' || p_progress::text,
        '"ordering_key":' || to_json(p_ordering_key)::text) || '}';
end
$$;
