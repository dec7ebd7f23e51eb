-- few_unclaimed(slots, queue, kind, limit, before) -> ids of the ready jobs that no cursor has passed, highest first, at most
-- `limit`; null when a lane has more than 2,000 of them (then reading from the top of the ids is the shorter way).
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.few_unclaimed(
    p_slots int[], p_queue text, p_kind text, p_limit int, p_before bigint
) returns bigint[]
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    v_slot int;
    v_queue text;
    v_ids bigint[] := '{}';
    v_part bigint[];
begin
    foreach v_slot in array p_slots loop
        for v_queue in select q from queues_of_slot(v_slot) as q where p_queue is null or q = p_queue loop
            case v_slot
{each_slot}
            when {slot} then
                v_part := array(
                    select case when (p_kind is null or u.kind = p_kind) and u.job_id < p_before then u.job_id end
                    from unclaimed_{slot}(v_queue) as u
                    limit 2001);
{end_slot}
            end case;
            if cardinality(v_part) > 2000 then
                return null;
            end if;
            v_ids := v_ids || v_part;
        end loop;
    end loop;
    return array(select i from unnest(v_ids) as i where i is not null order by i desc limit p_limit);
end
$$;
