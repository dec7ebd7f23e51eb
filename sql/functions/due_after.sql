-- due_after(seconds) -> the database's time so many seconds from now; a delay is held within 0 and a hundred years.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.due_after(p_delay_s float8) returns timestamptz
language sql volatile
as $$
    select clock_timestamp() + make_interval(secs => least(greatest(p_delay_s, 0), 3155760000))
$$;
