-- tombstone_job(job_id, reason) -> 'done', 'absent' (not unclaimed in the ring), 'claimed' (meanwhile), 'busy' (its lane
-- is held by a claim: ask again). Arrow: available -> out of the lane; the body stays readable in its slot.
-- Guard: under the lane's lock the cursor has not passed the row. Locks: the lane (try). Errors: AW002.
create or replace function {schema}.tombstone_job(p_job_id bigint, p_reason text default 'cancelled') returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    s record;
    f record;
    v_still boolean;
begin
    perform require_read_committed('tombstone_job');
    for s in select t.slot from slots as t order by t.generation desc loop
        execute format('select * from find_ready_%s($1) limit 1', s.slot) into f using p_job_id;
        continue when f.txid is null;
        if not try_lane_lock(f.queue, f.priority) then
            return 'busy';
        end if;
        -- a statement of its own, begun after the lock: a claim that held the lane has committed its cursor
        execute format('select exists (select from find_ready_%s($1) as r where r.txid = $2)', s.slot)
           into v_still using p_job_id, f.txid;
        if not v_still then
            return 'claimed';
        end if;
        insert into tombstones (slot, job_id, txid, reason) values (s.slot, p_job_id, f.txid, p_reason);
        return 'done';
    end loop;
    return 'absent';
end
$$;
