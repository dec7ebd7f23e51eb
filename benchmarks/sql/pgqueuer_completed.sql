select count(*), coalesce(extract(epoch from max(created) - %(since)s), 0)::float8
from pgqueuer_log where status = 'successful' and created >= %(since)s
