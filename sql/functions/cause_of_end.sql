-- cause_of_end(outcome word, error, reason) -> what ended an attempt without its handler, as owe_outcomes takes it; null where the
-- handler knows. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.cause_of_end(p_outcome text, p_error jsonb, p_reason text) returns text
language sql immutable
as $$
    select case
        when p_outcome = 'lost' then case
            when p_error ->> 'reason' = 'deadline_exceeded' then 'deadline_exceeded'
            when p_error ->> 'type' = 'RuntimeLost' then 'stale_heartbeat'
            else 'lost'
        end
        when p_outcome = 'cancel' and p_error is null and p_reason = 'cancelled_by_hand' then 'cancelled'
    end
$$;
