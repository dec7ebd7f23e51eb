-- How many attempts completed within the second that ended half a second ago: what has its time stamp is committed by then.
select coalesce(sum(bit_count(mask::bit(64))), 0)::bigint as jobs
from awa_pool.completions
where finalized_at >= clock_timestamp() - interval '1.5 s' and finalized_at < clock_timestamp() - interval '0.5 s'
    and outcome = 1
