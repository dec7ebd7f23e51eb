-- count_ids(slot, low, high, queue, kind, cap) -> rows of the slot with ids from low up to high and those filters, up to the cap.
-- Guard: none. Locks: none. Errors: none. Stops reading at the cap.
create or replace function {schema}.count_ids(
    p_slot int, p_low bigint, p_high bigint, p_queue text, p_kind text, p_cap int
) returns int
language plpgsql stable
set search_path = {schema}, pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_count int;
begin
    case p_slot
{each_slot}
    when {slot} then
        select count(*) into v_count
        from (
            select
            from jobs_ready_{slot} as r
            where r.job_id >= p_low and r.job_id < p_high and (p_queue is null or r.queue = p_queue)
                and (p_kind is null or r.kind = p_kind)
            limit p_cap
        ) as n;
{end_slot}
    end case;
    return v_count;
end
$$;
