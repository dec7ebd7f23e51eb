-- body_flaw(…) -> text: why no claim could hand out a row with these values, or null.
-- Guard: none. Locks: none. Errors: none. Rows that came by enqueue have none; other software may write what it likes.
create or replace function {schema}.body_flaw(
    p_queue text, p_priority int, p_kind text, p_attempt int, p_max_attempts int, p_tags text[],
    p_run_lease bigint, p_snoozes int
) returns text
language sql immutable
as $$
    select case
        when length(p_queue) not between 1 and 200 then 'queue: must have 1 to 200 characters'
        when length(p_kind) not between 1 and 200 then 'kind: must have 1 to 200 characters'
        when p_priority not between 1 and 4 then 'priority: must be 1 to 4'
        when p_max_attempts not between 1 and 1000 then 'max_attempts: must be 1 to 1000'
        when p_attempt not between 0 and 32000 then 'attempt: must be 0 to 32000'
        when cardinality(p_tags) > 20 then 'tags: at most 20 are allowed'
        when p_run_lease not between 0 and 1::bigint << 62 then 'run_lease: must be 0 to 2^62'
        when p_snoozes < 0 then 'snoozes: must not be negative'
    end
$$;
