-- For every bout: in how many places its job stands, the job's state and reason, the answer that it carries, and how many
-- marks its handler has left.
with mark as (
    select (args ->> 'number')::int as number, count(*) as marks from awa_pool.jobs where kind = 'mark' group by 1
)
select
    (j.args ->> 'number')::int as number, count(*)::int as places, min(j.state) as state, min(j.reason) as reason,
    min(j.metadata -> 'awa:callback' ->> 'payload') as answer, coalesce(min(m.marks), 0)::int as marks
from awa_pool.jobs as j
left join mark as m on m.number = (j.args ->> 'number')::int
where j.kind in ('bout', 'bout_blocking')
group by 1
