-- rule_outcome(word, attempt, max_attempts) -> code of `completions.outcome`; null for a word that is none.
-- A retry or a loss on the last attempt is a failure. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.rule_outcome(p_outcome text, p_attempt int, p_max_attempts int) returns int
language sql immutable
as $$
    select case p_outcome
        when 'completed' then 1
        when 'retry' then case when p_attempt >= p_max_attempts then 4 else 2 end
        when 'snooze' then 3
        when 'fail' then 4
        when 'cancel' then 5
        when 'return' then 6
        when 'lost' then case when p_attempt >= p_max_attempts then 4 else 7 end
    end
$$;
