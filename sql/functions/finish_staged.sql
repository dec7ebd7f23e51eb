-- finish_staged(ends, patience_ms, inout answers): attempts that end with follow-ups, each in a transaction of its own, in order.
-- ends: [{"end": item of finish, "follow_ups": [items of enqueue_many]}, …]. answers: [status, state, inserted, skipped, sqlstate,
-- error] for each; an end with a sqlstate was rolled back, and those beside it were not.
-- Arrow, guard, locks: as finish_with_follow_ups; keys that others hold are waited for up to patience_ms. Errors: AW002.
--
-- A procedure, for it commits: one trip serves many transactions. It has no settings of its own, which would forbid that.
-- Only the last commit of a trip waits for the disk: what was written before it is safe then too, and nobody has been
-- told of any of it. Who acts on it earlier, as by a claim, commits, and so makes it safe first.
create or replace procedure {schema}.finish_staged(p_ends json, p_patience_ms int, inout p_answers json default null)
language plpgsql
as $$
declare
    v_slots int[];
    v_receipts bigint[];
    v_nonces bigint[];
    v_bits bigint[];  -- null: not for the short road
    v_ends json[];
    v_jobs json[];
    v_answers text[] := '{}';
    v_written boolean := true;
    a record;
begin
    -- Nearly all of them: a plain completion, and follow-ups without keys. The general road takes three times as long.
    select
        pg_catalog.array_agg(f.slot order by e.place), pg_catalog.array_agg(f.receipt_id order by e.place),
        pg_catalog.array_agg(f.nonce order by e.place),
        pg_catalog.array_agg(
            case when f.outcome = 'completed' and pg_catalog.strpos(e.follow_ups::text, '"unique_') = 0
                then 1::bigint << f.index end order by e.place),
        pg_catalog.array_agg(e."end" order by e.place), pg_catalog.array_agg(e.follow_ups order by e.place)
    into v_slots, v_receipts, v_nonces, v_bits, v_ends, v_jobs
    from rows from (pg_catalog.json_to_recordset(p_ends) as ("end" json, follow_ups json))
        with ordinality as e("end", follow_ups, place)
    cross join lateral pg_catalog.json_to_record(e."end") as f(
        slot int, receipt_id bigint, nonce bigint, index int, outcome text);
    for i in 1 .. cardinality(v_ends) loop
        begin
            -- An end without keys waits for nobody but those that write other ends of its receipt.
            perform pg_catalog.set_config(
                'lock_timeout', case when v_bits[i] is null then p_patience_ms else 200 end || 'ms', true);
            if i < cardinality(v_ends) then
                perform pg_catalog.set_config('synchronous_commit', 'off', true);
            end if;
            v_written := false;
            if v_bits[i] is not null and {schema}.complete_one(v_slots[i], v_receipts[i], v_nonces[i], v_bits[i]) then
                v_answers := v_answers
                    || pg_catalog.format('["done","completed",%s,null,null,null]', {schema}.put_jobs(v_jobs[i]));
                v_written := true;
            else
                select f.* into a from {schema}.finish_with_follow_ups(v_ends[i], v_jobs[i]) as f;
                v_answers := v_answers || pg_catalog.json_build_array(
                    a.status, a.state, a.inserted, a.skipped, null, null)::text;
                v_written := a.status = 'done';
            end if;
        exception
            when others then
                v_written := false;
                v_answers := v_answers || pg_catalog.json_build_array('refused', null, 0, null, sqlstate, sqlerrm)::text;
        end;
        commit;
    end loop;
    if not v_written then  -- the last commit had nothing to write, and so waited for nothing
        perform pg_catalog.pg_logical_emit_message(true, 'awa_pool', '');
        commit;
    end if;
    p_answers := ('[' || pg_catalog.array_to_string(v_answers, ',') || ']')::json;
end
$$;
