-- finish_staged(ends, patience_ms, inout answers): attempts that end with follow-ups, each in a transaction of its own, in order.
-- ends: [{"end": item of finish, "follow_ups": [items of enqueue_many]}, …]. answers: [status, state, inserted, skipped, sqlstate,
-- error] for each; an end with a sqlstate was rolled back, and those beside it were not.
-- Arrow, guard, locks: as finish_with_follow_ups; keys that others hold are waited for up to patience_ms. Errors: AW002.
--
-- A procedure, for it commits: one trip serves many transactions. It has no settings of its own, which would forbid that.
create or replace procedure {schema}.finish_staged(p_ends json, p_patience_ms int, inout p_answers json default null)
language plpgsql
as $$
declare
    v_ends json[] := array(select e.value from pg_catalog.json_array_elements(p_ends) as e);
    v_end json;
    v_jobs json;
    v_answers text[] := '{}';
    a record;
begin
    for i in 1 .. cardinality(v_ends) loop
        begin
            perform pg_catalog.set_config('lock_timeout', p_patience_ms || 'ms', true);
            v_end := v_ends[i] -> 'end';
            v_jobs := v_ends[i] -> 'follow_ups';
            -- Nearly all of them: a plain completion, and follow-ups without keys. The general road takes three times as long.
            if v_end ->> 'outcome' = 'completed' and pg_catalog.strpos(v_jobs::text, '"unique_') = 0
                and {schema}.complete_one((v_end ->> 'slot')::int, (v_end ->> 'receipt_id')::bigint,
                    (v_end ->> 'nonce')::bigint, 1::bigint << (v_end ->> 'index')::int)
            then
                v_answers := v_answers || pg_catalog.format('["done","completed",%s,null,null,null]',
                    {schema}.put_jobs(v_jobs));
            else
                select f.* into a from {schema}.finish_with_follow_ups(v_end, v_jobs) as f;
                v_answers := v_answers || pg_catalog.json_build_array(
                    a.status, a.state, a.inserted, a.skipped, null, null)::text;
            end if;
        exception
            when others then
                v_answers := v_answers || pg_catalog.json_build_array('refused', null, 0, null, sqlstate, sqlerrm)::text;
        end;
        commit;
    end loop;
    p_answers := ('[' || pg_catalog.array_to_string(v_answers, ',') || ']')::json;
end
$$;
