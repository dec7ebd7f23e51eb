-- callback_of(job) -> (number, since, until) of the callback that the job waits for, or no row: since when, and when it times out.
-- Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement: one SELECT, no SET clause.
create or replace function {schema}.callback_of(p_job_id bigint)
returns table(number int, since timestamptz, until timestamptz)
language sql stable
as $$
    select l.callback_no, l.waiting_since, l.callback_until
    from {schema}.leases as l
    where l.job_id = p_job_id and l.state = 'waiting_external'
$$;
