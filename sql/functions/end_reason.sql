-- end_reason(outcome word, reason given) -> why a failed or cancelled job ended, as jobs_dead and jobs_finished keep
-- it: what made its last attempt fail where that has a word (deadline_exceeded), else that it was the last, or terminal.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.end_reason(p_outcome text, p_reason text) returns text
language sql immutable
as $$
    select left(case p_outcome
        when 'retry' then coalesce(p_reason, 'max_attempts_exhausted')
        when 'lost' then coalesce(p_reason, 'max_attempts_exhausted')
        when 'fail' then coalesce(p_reason, 'terminal_error')
        else p_reason
    end, 1000)
$$;
