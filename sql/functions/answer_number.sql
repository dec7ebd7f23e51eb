-- answer_number(metadata) -> the number of the callback whose answer the job carries (see with_answer), 0: none.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.answer_number(p_metadata json) returns int
language sql immutable
as $$
    select case
        when p_metadata is null or strpos(p_metadata::text, '"awa:callback"') = 0 then 0
        when json_typeof(p_metadata) <> 'object' then 0
        when (p_metadata -> 'awa:callback' ->> 'number') ~ e'^\\d{1,9}$' then (p_metadata -> 'awa:callback' ->> 'number')::int
        else 0
    end
$$;
