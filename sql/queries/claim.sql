-- Claim jobs of several queues -> a row per receipt, and a row per queue that gave nothing (note: empty, busy, paused).
select queue, note, slot, receipt_id, nonce, priority, job_ids, kinds, bodies
from {schema}.claim(
    %(queues)s::text[], %(limits)s::int[], %(total)s::int, %(max_bytes)s::bigint, %(chunk)s::int,
    %(runtime_id)s::uuid, %(request_id)s::bigint, %(waiting)s::boolean)
