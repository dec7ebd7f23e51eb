-- What the database believes a runtime holds -> a row per open receipt, one per lease (open_mask names the index).
select slot, receipt_id, nonce, open_mask, request_id, age_s, job_ids, leases
from {schema}.open_attempts(%(runtime_id)s::uuid)
