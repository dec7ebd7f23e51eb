-- finish_with_follow_ups(end, follow_ups) -> (status, state, inserted, skipped): one attempt's end, and the jobs that exist
-- exactly if it is written. `end` is an item of finish, `follow_ups` an array of items of enqueue_many, put in in its order.
-- status as of finish; skipped: [kind, holder] of each follow-up whose key another job holds, and goes on holding at least
-- until this transaction has ended. A key that the job itself held and has given up by this end goes to the first that wants it.
-- An end with the outcome `park` is an item of park_attempts: status may be 'refused' too, and a duplicate, which is cancelled
-- instead, brings no follow-ups.
-- Arrow: running -> whatever the outcome says; (new) -> available | scheduled. Guard: as finish; as park_attempts.
-- Locks: unique keys of the follow-ups in key order, waiting as the caller's lock_timeout lets; then as finish.
-- Errors: AW001 naming a follow-up, AW002, AW006, 55P03, and whatever an insert raises: the caller rolls back.
create or replace function {schema}.finish_with_follow_ups(p_end json, p_follow_ups json)
returns table(status text, state text, inserted int, skipped json)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_keyed boolean := strpos(p_follow_ups::text, '"unique_') > 0;
    k record;
    v record;
    v_bit bigint;
    v_parked boolean := true;  -- or it has ended in another way
    v_own int[];  -- places of follow-ups that wanted the key of this job, which is free now
    v_taken int[];
    v_lost json;
begin
    if v_keyed then
        select * into k from hold_follow_up_keys(p_follow_ups);
        skipped := k.skipped;
    end if;
    if p_end ->> 'outcome' = 'completed' then
        v_bit := 1::bigint << (p_end ->> 'index')::int;
        select coalesce(bit_or(c.done), 0) as done, coalesce(bit_or(c.busy), 0) as busy into v
        from complete(array[(p_end ->> 'slot')::int], array[(p_end ->> 'receipt_id')::bigint],
            array[(p_end ->> 'nonce')::bigint], array[v_bit]) as c;
        status := case when v.done <> 0 then 'done' when v.busy <> 0 then 'busy' else 'stale' end;
        state := case when v.done <> 0 then 'completed' end;
    elsif p_end ->> 'outcome' = 'park' then
        perform keep_progress(json_build_array(p_end));  -- while the attempt is still its host's
        select p.status, p.state into status, state from park_attempts(json_build_array(p_end)) as p;
        v_parked := state is distinct from 'cancelled';
    else
        select f.status, f.state into status, state from finish(json_build_array(p_end)) as f;
    end if;
    inserted := 0;
    if status = 'done' and v_parked then
        if v_keyed then
            if skipped is not null then
                -- All other holders are locked. Nobody is waited for: until this transaction has ended the key is its own.
                v_own := array(
                    select i from generate_subscripts(k.keys, 1) as i
                    where not k.fresh[i] and not exists (select from unique_claims as u where u.unique_key = k.keys[i]));
                if v_own <> '{}' then
                    select
                        array_agg(o.place) filter (where t.holder is null),
                        json_agg(json_build_array(p_follow_ups -> (o.place - 1) ->> 'kind', t.holder))
                            filter (where t.holder is not null)
                    into v_taken, v_lost
                    from unnest(v_own) with ordinality as o(place, n)
                    left join take_keys(
                        array(select k.keys[w.i] from unnest(v_own) with ordinality as w(i, n) order by w.n),
                        array(select k.ids[w.i] from unnest(v_own) with ordinality as w(i, n) order by w.n)) as t
                        on t.place = o.n;
                    k.fresh := array(
                        select f.is_fresh or f.place = any (v_taken)
                        from unnest(k.fresh) with ordinality as f(is_fresh, place) order by f.place);
                    skipped := (
                        select json_agg(s.entry)
                        from (
                            select e as entry from json_array_elements(k.skipped) as e
                            where (e ->> 1)::bigint <> (p_end ->> 'job_id')::bigint
                            union all
                            select e from json_array_elements(v_lost) as e
                        ) as s);
                end if;
            end if;
            perform enqueue_many_timed(p_follow_ups, k.ids, k.fresh, true);
            inserted := (select count(*) from unnest(k.fresh) as n(fresh) where n.fresh);
        else
            inserted := put_jobs(p_follow_ups);
        end if;
    elsif v_keyed then
        perform drop_keys(k.keys, k.ids);
    end if;
    return next;
end
$$;
