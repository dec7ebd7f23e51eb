-- How many jobs of a queue have completed, those of slots that were given back included.
select coalesce(sum(q.completed), 0)::bigint as jobs from awa_pool.queue_stats() as q where q.queue = %(queue)s
