select sum(bit_count(mask::bit(64)))::bigint, extract(epoch from max(finalized_at) - %(since)s)::float8
from bare.completions
