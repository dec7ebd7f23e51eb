-- ready_depth(queue, cap) -> (available, oldest, estimated) of a queue over current and sealed slots and what was given back.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.ready_depth(p_queue text, p_cap int)
returns table(available bigint, oldest timestamptz, estimated boolean)
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_slot int;
    d record;
begin
    select count(*), min(b.run_at) into available, oldest
    from (
        select greatest(j.run_at, j.created_at) as run_at
        from jobs_returned as j
        where j.queue = p_queue
        order by j.priority, j.job_id
        limit p_cap
    ) as b;
    estimated := available >= p_cap;
    for v_slot in
        select s.slot
        from slots as s
        where s.state in ('current', 'sealed')
            and not exists (select from drained_lanes as m where m.slot = s.slot and m.queue = p_queue)
    loop
        case v_slot
{each_slot}
        when {slot} then
            select * into d from ready_depth_{slot}(p_queue, p_cap);
{end_slot}
        end case;
        available := available + d.available;
        oldest := least(oldest, d.oldest);
        estimated := estimated or d.estimated;
    end loop;
    return next;
end
$$;
