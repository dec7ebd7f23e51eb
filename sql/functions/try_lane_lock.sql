-- try_lane_lock(queue, priority) -> whether this transaction now owns the lane in every slot.
-- Held by a claim, a cancel of a ready job and a move of unclaimed jobs, until their transaction ends. A clash of
-- hashes only makes two lanes take turns. Errors: none.
create or replace function {schema}.try_lane_lock(p_queue text, p_priority int) returns boolean
language plpgsql volatile
as $$
begin
    return pg_try_advisory_xact_lock(1635202370, hashtext({schema_name} || '/' || p_priority || '/' || p_queue));
end
$$;
