-- item_flaw(json) -> text: "field: what is wrong" with one item of a bulk request, or null.
-- Guard: none. Locks: none. Errors: none. Runs only once a document was refused, so it may take its time.
create or replace function {schema}.item_flaw(p_item json) returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    j record;
    v_flaw text;
begin
    if json_typeof(p_item) is distinct from 'object' then
        return 'item: must be an object';
    end if;
    if not json_is_exact(p_item) then
        -- Marks what cannot be held with a character that no text holds, to see whose value it is in.
        select format('%s: holds a NUL or half a surrogate pair', f.key) into v_flaw
        from json_each(regexp_replace(
            p_item::text, e'\\\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})', e'\\\\ufdd0', 'g')::json) as f
        where strpos(f.value::text, e'\\ufdd0') > 0
        limit 1;
        return coalesce(v_flaw, 'item: has a name that holds a NUL or half a surrogate pair');
    end if;
    select format('%s: must be %s', f.name, f.wanted) into v_flaw
    from (
        values
            ('kind', 'string', 'text'), ('queue', 'string', 'text'), ('ordering_key', 'string', 'text'),
            ('run_at', 'string', 'an ISO 8601 time with a zone'), ('priority', 'number', '1 to 4'),
            ('max_attempts', 'number', '1 to 1000'), ('unique_states', 'number', '1 to 255'),
            ('unique_key', 'string', '32 hexadecimal digits'), ('args', 'object', 'an object'),
            ('metadata', 'object', 'an object'), ('tags', 'array', 'a list of text')
    ) as f(name, type, wanted)
    where json_typeof(p_item -> f.name) not in (f.type, 'null')
        or (f.type = 'number' and (p_item ->> f.name) !~ e'^\\d{1,9}$')
    limit 1;
    if found then
        return v_flaw;
    end if;
    if json_typeof(p_item -> 'tags') = 'array' and exists (
        select from json_array_elements(p_item -> 'tags') as t where json_typeof(t) <> 'string'
    ) then
        return 'tags: must be a list of text';
    end if;
    if p_item ->> 'run_at' is not null and parse_run_at(p_item ->> 'run_at') is null then
        return 'run_at: must be an ISO 8601 time with a zone, within the years 1 to 9999';
    end if;
    if (p_item ->> 'unique_key') !~ '^[0-9a-fA-F]{32}$' then
        return 'unique_key: must be 32 hexadecimal digits';
    end if;
    v_flaw := unique_flaw(decode(p_item ->> 'unique_key', 'hex'), (p_item ->> 'unique_states')::int, 'raise');
    if v_flaw is not null then
        return v_flaw;
    end if;
    -- By its spelling first: a number that no column holds would end this with another error.
    if json_typeof(p_item -> 'deadline_s') <> 'null' and not (
        json_typeof(p_item -> 'deadline_s') = 'number'
        and (p_item ->> 'deadline_s') ~ e'^\\d{1,9}(\\.\\d+)?([eE][-+]?\\d{1,2})?$'
        and deadline_fits((p_item ->> 'deadline_s')::float8)) then
        return 'deadline_s: must be 0.01 to 31536000 seconds';
    end if;
    select * into j
    from json_to_record(p_item) as r(
        kind text, args json, queue text, priority int, max_attempts int, metadata json, tags text[],
        ordering_key text);
    return request_flaw(
        j.kind, j.args, coalesce(j.queue, 'default'), coalesce(j.priority, 2), coalesce(j.max_attempts, 25),
        j.metadata, j.tags, j.ordering_key);
end
$$;
