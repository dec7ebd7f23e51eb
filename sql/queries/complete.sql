-- Complete attempts in bulk -> per receipt the bits that are done now, those that were stale, those held elsewhere.
select receipt_id, done, stale, busy
from {schema}.complete(%(slots)s::int[], %(receipts)s::bigint[], %(nonces)s::bigint[], %(masks)s::bigint[])
