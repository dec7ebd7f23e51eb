-- readable_time(timestamptz) -> the time, or null when it lies outside the years 1 to 9999, where most drivers cannot go.
-- Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement.
create or replace function {schema}.readable_time(p_at timestamptz) returns timestamptz
language sql stable
as $$
    select case
        when p_at >= '0001-01-01 00:00:00+00'::timestamptz and p_at < '10000-01-01 00:00:00+00'::timestamptz then p_at
    end
$$;
