select count(*), coalesce(extract(epoch from max(at) - %(since)s), 0)::float8
from procrastinate_events where type = 'succeeded' and at >= %(since)s
