-- stale_time(info, otherwise) -> the seconds of silence after which a runtime counts as gone: what it said at its start, if that is a number
-- of seconds, at most a day.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.stale_time(p_info jsonb, p_otherwise float8) returns float8
language sql immutable
as $$
    select case
        when jsonb_typeof(p_info -> 'stale_s') <> 'number' then p_otherwise
        when (p_info ->> 'stale_s')::numeric between 0.01 and 86400 then (p_info ->> 'stale_s')::float8
        else p_otherwise
    end
$$;
