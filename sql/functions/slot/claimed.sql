-- claimed_{slot}() -> every claim that slot {slot}'s receipts know: (job_id, run_lease and priority as in the body's row, receipt_id,
-- outcome; null: open). A job has one row, and at most one claim, of each run_lease and priority, so these three name it
-- without a transaction id. Guard: none. Locks: none. Errors: none. Unfolds into the caller's statement.
create or replace function {schema}.claimed_{slot}()
returns table(job_id bigint, run_lease bigint, priority smallint, receipt_id bigint, outcome smallint)
language sql stable
as $$
    select i.job_id, coalesce(c.leases[i.place], 1) - 1, c.priority, c.receipt_id, d.outcome
    from {schema}.receipts_{slot} as c
    cross join lateral unnest(c.job_ids) with ordinality as i(job_id, place)
    left join {schema}.completions_{slot} as d
        on d.receipt_id = c.receipt_id and d.mask & (1::bigint << (i.place - 1)::int) <> 0
$$;
