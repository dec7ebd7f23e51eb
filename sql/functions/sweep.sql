-- sweep() -> 'nothing', 'busy', or what was found: slots reopened, marks removed, the sequence and what claims look into set right.
-- Arrow: free or exhausted -> sealed where a row stands that no cursor has passed. Also notes below which receipt
-- nothing is open, keeps the block ranges of job ids summarised (nothing else does: these tables have no vacuum), drops what
-- completed attempts have said of their progress, and cuts an emptied jobs_returned back.
-- Locks: the ring (try), jobs_returned (try). Errors: AW002.
create or replace function {schema}.sweep() returns text
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    s record;
    v_queues text[];
    v_open bigint;
    v_seq bigint;
    v_count int;
    v_marks int := 0;
    v_found text[] := '{}';
begin
    perform require_read_committed('sweep');
    if not try_ring_lock() then
        return 'busy';
    end if;
    for s in select t.slot, t.generation, t.state, t.open_from from slots as t order by t.generation loop
        if s.state = 'current' then
            if s.slot <> pg_sequence_last_value('{schema_text}.current_slot'::regclass) then
                -- a rotation failed after it had moved the sequence
                perform setval('{schema_text}.current_slot', s.slot);
                v_found := v_found || format('current slot set back to %s', s.slot);
            end if;
        elsif s.state <> 'sealed'
            or exists (select from drained_lanes as d where d.slot = s.slot and d.generation = s.generation) then
            execute format('select array_agg(u.queue) from unclaimed_queues_%s() as u', s.slot) into v_queues;
            if v_queues is not null then
                delete from drained_lanes as d where d.slot = s.slot and d.queue = any (v_queues);
                get diagnostics v_count = row_count;
                v_marks := v_marks + v_count;
                if s.state <> 'sealed' then
                    update slots set state = 'sealed', sealed_at = clock_timestamp(), sealed_xid = null,
                                     exhausted_at = null, keys_to = -9223372036854775808
                     where slot = s.slot;
                    v_found := v_found || format('reopened slot %s for late jobs', s.slot);
                end if;
            end if;
        end if;
        if s.state in ('current', 'sealed') then
            execute format('select coalesce(open_receipt_%s($1), (select max(receipt_id) from receipts_%s))',
                           s.slot, s.slot) into v_open using s.open_from - 1;
            -- a claim still open may yet show a smaller id: stay well behind
            if v_open - 10000 > s.open_from then
                update slots set open_from = v_open - 5000 where slot = s.slot;
            end if;
            perform summarise_job_ids(s.slot);
        end if;
    end loop;
    if v_marks > 0 then
        v_found := v_found || format('%s drained lanes have late jobs', v_marks);
    end if;
    v_seq := (select max(c.seq) from claimable_slots as c);
    update slots set state = state where false;  -- its trigger looks again: slots may have been written while triggers were off
    if (select max(c.seq) from claimable_slots as c) is distinct from v_seq then
        v_found := v_found || 'claims look into the right slots again'::text;
    end if;
    perform sweep_progress(1000);
    if empty_returned() then
        v_found := v_found || 'cut jobs_returned back'::text;
    end if;
    return case when v_found = '{}' then 'nothing' else array_to_string(v_found, ', ') end;
end
$$;
