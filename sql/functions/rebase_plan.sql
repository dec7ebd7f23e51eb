-- rebase_plan() -> what rebase would do: why it is needed (null: it is not), jobs it would enter anew, attempts of other
-- runtimes it would leave to the next rescue, highest ids in use, and who beat here in the last half minute. A heartbeat
-- that stands in a schema of another cluster was copied with it and does not count. Changes nothing; reads the whole ring.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.rebase_plan()
returns table(
    reason text, unclaimed bigint, open_attempts bigint, top_job bigint, top_receipt bigint, alive text[])
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
as $$
declare
    v_tops record;
begin
    select coalesce(sum(c.unclaimed), 0), coalesce(sum(c.open_attempts), 0), max(c.top_job), max(c.top_receipt)
      into unclaimed, open_attempts, top_job, top_receipt
      from (
        select 0::bigint as unclaimed, 0::bigint as open_attempts, 0::bigint as top_job, 0::bigint as top_receipt where false
{each_slot}
        union all
        select * from rebase_counts_{slot}()
{end_slot}
      ) as c;
    select count(l.runtime_id) as open_attempts, max(l.job_id) as top_job, max(l.receipt_id) as top_receipt into v_tops
      from leases as l;
    open_attempts := open_attempts + v_tops.open_attempts;
    top_receipt := greatest(top_receipt, v_tops.top_receipt, 0);
    top_job := greatest(
        top_job, v_tops.top_job, (select max(l.job_id) from leases as l), (select max(j.job_id) from jobs_deferred as j),
        (select max(j.job_id) from jobs_returned as j), (select max(j.job_id) from jobs_finished as j),
        (select max(j.job_id) from jobs_dead as j), (select max(u.job_id) from unique_claims as u), 0);
    reason := rebase_needed();
    if reason is null and (
        top_job > coalesce(pg_sequence_last_value('{schema_text}.job_id_seq'::regclass), 0)
        or top_receipt > coalesce(pg_sequence_last_value('{schema_text}.receipt_id_seq'::regclass), 0)) then
        reason := 'has sequences that stand behind its rows, as after a logical copy';
    end if;
    if reason is null and exists (
        select from jobs_ready as r where r.txid >= pg_snapshot_xmax(pg_current_snapshot())) then
        reason := 'holds jobs of transactions that this cluster has not reached, as after a restore into a clone';
    end if;
    reason := coalesce(reason, lost_window());
    alive := array(
        select format('pid %s on %s', r.pid, r.host)
          from runtimes as r
          join meta as m on m.system_identifier = (select c.system_identifier from pg_control_system() as c)
         where r.state = 'alive' and r.heartbeat_at between clock_timestamp() - interval '30 s' and clock_timestamp()
         order by r.heartbeat_at desc);
    return next;
end
$$;
