-- run_at_flaw(timestamptz) -> text: what is wrong with a due time, or null.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.run_at_flaw(p_run_at timestamptz) returns text
language sql stable
as $$
    select case
        when p_run_at < '0001-01-01 00:00:00+00'::timestamptz or p_run_at >= '10000-01-01 00:00:00+00'::timestamptz
            then 'must lie within the years 1 to 9999'
    end
$$;
