-- Move running attempts to leases -> (item, done | stale | busy | invalid).
select item, status
from {schema}.lease_attempts(%(items)s::json)
