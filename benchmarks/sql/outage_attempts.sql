-- Attempts beyond the first of each job: what an outage has used up.
select coalesce(sum(attempt - 1) filter (where attempt > 1), 0)::int as used from awa_pool.jobs
