-- jobs: every job of the database, whatever its place. Look-ups by id use indexes; for pages use list_jobs, for counts
-- queue_stats: a count over this view reads everything.
create or replace view {schema}.jobs as
select * from {schema}.stored_jobs()
{each_slot}
union all
select * from {schema}.ring_jobs_{slot}()
{end_slot}
;
