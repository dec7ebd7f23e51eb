-- states_hold(mask, state) -> boolean: whether a job with that mask holds its unique key in that state. Bits: scheduled 0,
-- available 1, running 2, completed 3, retryable 4, failed 5, cancelled 6, waiting_external 7. No mask holds nothing.
-- Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement.
create or replace function {schema}.states_hold(p_states int, p_state text) returns boolean
language sql immutable
as $$
    select coalesce(p_states, 0) & (1 << case p_state
        when 'scheduled' then 0
        when 'available' then 1
        when 'running' then 2
        when 'completed' then 3
        when 'retryable' then 4
        when 'failed' then 5
        when 'cancelled' then 6
        when 'waiting_external' then 7
        else 30
    end) <> 0
$$;
