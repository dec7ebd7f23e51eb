-- rebase(force) -> the plan that was carried out (see rebase_plan); with a null reason nothing was done, unless forced.
-- Makes a restored or copied database this cluster's own: what is unclaimed by receipts and tombstones stands in its slot under
-- a fresh xid, cursors begin anew, sequences go a million beyond every id in use (those of the tail that the copy lacks are
-- not given out again). Runtimes get one more threshold to beat: a pool that outlived the change goes on with what it
-- holds, the attempts of the others are rescued. History, stored jobs, unique keys and settings stay as they are.
-- One transaction, so that nothing is ever half rebased; a second one waits, then finds nothing to do.
-- Arrow: none (available stays available). Locks: all tables of the ring, ACCESS EXCLUSIVE, for 30 s.
-- Errors: AW002, AW005 while a pool works on it (unless forced), 55P03.
create or replace function {schema}.rebase(p_force boolean default false)
returns table(
    reason text, unclaimed bigint, open_attempts bigint, top_job bigint, top_receipt bigint, alive text[])
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set lock_timeout = '30s'
as $$
declare
    v_txid xid8;
    v_count bigint;
begin
    perform require_read_committed('rebase');
    lock table jobs_ready, receipts, completions, tombstones, slots, claimable_slots, cursors, cursor_windows, drained_lanes, leases, runtimes, meta
        in access exclusive mode;
    select * into reason, unclaimed, open_attempts, top_job, top_receipt, alive from rebase_plan();
    if reason is null and not p_force then
        return next;
        return;
    end if;
    if alive <> '{}' and not p_force then
        raise exception 'a pool works on schema % (%): stop it, or force the rebase', {schema_name}, alive[1]
            using errcode = 'AW005';
    end if;
    v_txid := pg_current_xact_id();
    perform raise_sequence('job_id_seq', top_job, 1000000), raise_sequence('receipt_id_seq', top_receipt, 1000000),
            raise_sequence('window_id_seq', (select max(w.window_id) from cursor_windows as w), 0),
            raise_sequence('cursor_seq', (select max(c.seq) from cursors as c), 0),
            setval('{schema_text}.current_slot', (select s.slot from slots as s where s.state = 'current'));
    if exists (select from receipts as r where r.yields is not null) then
        perform nextval('{schema_text}.yielding_seq');  -- that it was ever called is what it says
    end if;
    delete from cursors;
    delete from cursor_windows;
    delete from drained_lanes;
    update slots set sealed_xid = null, open_from = 0, state = state;  -- and what its trigger writes
{each_slot}
    v_count := rebase_{slot}(v_txid);
    if v_count > 0 then
        update slots as s set state = 'sealed', sealed_at = clock_timestamp(), exhausted_at = null
         where s.slot = {slot} and s.state in ('free', 'exhausted');
    end if;
{end_slot}
    update runtimes set heartbeat_at = clock_timestamp() where state = 'alive';
    delete from leader;
    delete from queue_waiters;
    update meta set system_identifier = (select c.system_identifier from pg_control_system() as c);
    perform pg_notify('awa_pool', '');
    return next;
end
$$;
