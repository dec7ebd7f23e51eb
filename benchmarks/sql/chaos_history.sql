-- Every attempt of a job: receipt, index, when it was claimed and by which runtime, and how and when it ended.
select format('receipt %%s index %%s claimed %%s by %%s, outcome %%s at %%s', r.receipt_id, i, to_char(r.claimed_at, 'HH24:MI:SS.MS'),
        left(r.runtime_id::text, 8), c.outcome, to_char(c.finalized_at, 'HH24:MI:SS.MS'))
from awa_pool.receipts as r
cross join generate_series(0, r.n - 1) as i
left join awa_pool.completions as c
    on c.slot = r.slot and c.receipt_id = r.receipt_id and c.mask & (1::bigint << i) <> 0
where r.job_ids[i + 1] = %(job)s
order by r.claimed_at, c.finalized_at
