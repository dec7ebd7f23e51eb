-- How many bouts have not ended.
select count(*) from awa_pool.jobs
where kind in ('bout', 'bout_blocking') and state not in ('completed', 'failed', 'cancelled')
