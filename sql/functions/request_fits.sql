-- request_fits(…) -> boolean: whether a request for a job keeps every bound but those of its args (args_fit);
-- request_flaw says which one is broken.
-- Guard: none. Locks: none. Errors: none.
--
-- Written so that the planner unfolds it into the caller's statement: one SELECT, no SET clause, no volatile part.
-- Called only by functions that have fixed their search path.
create or replace function {schema}.request_fits(
    p_kind text, p_queue text, p_priority int, p_max_attempts int, p_metadata json, p_tags text[], p_ordering_key text
) returns boolean
language sql stable
as $$
    select coalesce(
        length(p_kind) between 1 and 200
        and length(p_queue) between 1 and 200
        and p_priority between 1 and 4
        and p_max_attempts between 1 and 1000
        and (p_metadata is null or {schema}.metadata_flaw(p_metadata) is null)
        and (p_tags is null or {schema}.tags_flaw(p_tags) is null)
        and (p_ordering_key is null or length(p_ordering_key) between 1 and 200),
        false)
$$;
