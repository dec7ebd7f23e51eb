-- deadline_fits(seconds) -> boolean: whether an attempt may be given so long; null, no deadline, fits.
-- Guard: none. Locks: none. Errors: none. Written so that the planner unfolds it into the caller's statement.
create or replace function {schema}.deadline_fits(p_deadline_s float8) returns boolean
language sql immutable
as $$
    select p_deadline_s is null or p_deadline_s between 0.01 and 31536000
$$;
