-- The same, with the buffers it touched.
explain (analyze, buffers, format json)
select slot, receipt_id, nonce, job_ids
from awa_pool.claim(array['bench'], array[%(jobs)s]::int[], %(jobs)s, 67108864, 63, %(runtime)s::uuid, %(request)s, false)
