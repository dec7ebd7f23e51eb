-- The product's claim of one queue, as its dispatcher calls it.
select slot, receipt_id, nonce, cardinality(job_ids) as n
from awa_pool.claim(array['bench'], array[%(jobs)s]::int[], %(jobs)s, 67108864, 63, %(runtime)s::uuid, %(request)s, false)
where note = 'receipt'
