-- count_ready(queue, cap) -> claimable jobs of a queue, counted up to the cap in each place.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.count_ready(p_queue text, p_cap int) returns bigint
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    v_total bigint;
    v_part bigint;
    v_slot int;
begin
    select count(*) into v_total
    from (select from jobs_returned as j where j.queue = p_queue limit p_cap) as b;
    for v_slot in
        select s.slot
        from slots as s
        where s.state in ('current', 'sealed')
            and not exists (select from drained_lanes as m where m.slot = s.slot and m.queue = p_queue)
    loop
        case v_slot
{each_slot}
        when {slot} then
            select count(*) into v_part from (select from unclaimed_{slot}(p_queue) limit p_cap) as u;
{end_slot}
        end case;
        v_total := v_total + v_part;
    end loop;
    return v_total;
end
$$;
