-- Jobs that have not ended.
select count(*)::bigint from awa_pool.jobs where state not in ('completed', 'failed', 'cancelled')
