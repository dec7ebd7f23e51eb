-- For every job: how many of its attempts ended it for good, whether it stands among those kept with their end, when it
-- ended first, and whether an end was a completion.
with final as (
    select r.job_ids[i + 1] as job_id, count(*) as ends, min(c.finalized_at) as ended_at, bool_or(c.outcome = 1) as completed
    from awa_pool.completions as c
    join awa_pool.receipts as r on r.slot = c.slot and r.receipt_id = c.receipt_id
    cross join generate_series(0, r.n - 1) as i
    where c.outcome in (1, 4, 5) and c.mask & (1::bigint << i) <> 0
    group by 1
),
kept as (
    select job_id, finalized_at, state = 'completed' as completed from awa_pool.jobs_finished
    union all
    select job_id, finalized_at, false from awa_pool.jobs_dead
),
known as (
    select id, min(state) as state, count(*) as places from awa_pool.jobs group by id
)
select k.id, k.state, k.places::int, coalesce(f.ends, 0)::int as ends,
    coalesce(f.completed, t.completed, false) as completed,
    extract(epoch from least(f.ended_at, t.finalized_at))::float8 as ended_at
from known as k
left join final as f on f.job_id = k.id
left join kept as t on t.job_id = k.id
