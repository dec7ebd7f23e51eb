-- How many attempts wait for a callback with their handlers, and how many have a row of their own at all.
select count(*) filter (where state = 'waiting_external'), count(*) from awa_pool.leases where runtime_id is not null
