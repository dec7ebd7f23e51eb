-- How many attempts have completed since a moment, and how long after it the last did.
select coalesce(sum(bit_count(mask::bit(64))), 0)::bigint as jobs,
    coalesce(extract(epoch from max(finalized_at) - %(since)s), 0)::float8 as took_s
from awa_pool.completions
where finalized_at >= %(since)s and outcome = 1
