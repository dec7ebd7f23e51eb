-- duplicate_reason(holder) -> what stands as the reason of a job cancelled because another job has its unique key.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.duplicate_reason(p_holder bigint) returns text
language sql immutable
as $$
    select 'duplicate of job ' || p_holder
$$;
