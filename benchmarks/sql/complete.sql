-- The product's batched completion.
select receipt_id, done, stale, busy
from awa_pool.complete(%(slots)s::int[], %(receipts)s::bigint[], %(nonces)s::bigint[], %(masks)s::bigint[])
