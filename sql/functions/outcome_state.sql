-- outcome_state(code) -> the job's state after an attempt ended with that code.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.outcome_state(p_code int) returns text
language sql immutable
as $$
    select case p_code
        when 1 then 'completed'
        when 2 then 'retryable'
        when 3 then 'scheduled'
        when 4 then 'failed'
        when 5 then 'cancelled'
        when 6 then 'available'
        when 7 then 'retryable'
        when 9 then 'waiting_external'
    end
$$;
