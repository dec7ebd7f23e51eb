-- attempt_after(code, attempts before) -> attempts used once an attempt ended with that code: a snooze and a return use none.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.attempt_after(p_code int, p_before int) returns smallint
language sql immutable
as $$
    select (p_before + case when p_code in (3, 6) then 0 else 1 end)::smallint
$$;
