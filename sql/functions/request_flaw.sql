-- request_flaw(…) -> text: "field: what is wrong" of the first bound that a request breaks, or null.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.request_flaw(
    p_kind text, p_args json, p_queue text, p_priority int, p_max_attempts int, p_metadata json, p_tags text[],
    p_ordering_key text
) returns text
language sql stable
set search_path = {schema}, pg_catalog, pg_temp
as $$
    select case
        when p_kind is null or length(p_kind) not between 1 and 200 then 'kind: must have 1 to 200 characters'
        when p_queue is null or length(p_queue) not between 1 and 200 then 'queue: must have 1 to 200 characters'
        when p_priority is null or p_priority not between 1 and 4 then 'priority: must be 1 to 4'
        when p_max_attempts is null or p_max_attempts not between 1 and 1000
            then 'max_attempts: must be 1 to 1000'
        when p_args is null or json_typeof(p_args) <> 'object' then 'args: must be an object'
        when octet_length(p_args::text) > 8388608
            then format('args: has %s bytes; at most 8388608 are allowed', octet_length(p_args::text))
        when strpos(p_args::text, e'\\u') > 0 and not json_is_exact(p_args)
            then 'args: holds a NUL or half a surrogate pair'
        when not numbers_fit(p_args)
            then 'args: holds an integer that does not fit 64 bits, signed, or a number beyond what a float holds'
        when not levels_fit(p_args) then 'args: nested deeper than 64 levels'
        when p_metadata is not null and metadata_flaw(p_metadata) is not null
            then 'metadata: ' || metadata_flaw(p_metadata)
        when p_tags is not null and tags_flaw(p_tags) is not null then 'tags: ' || tags_flaw(p_tags)
        when p_ordering_key is not null and length(p_ordering_key) not between 1 and 200
            then 'ordering_key: must have 1 to 200 characters'
    end
$$;
