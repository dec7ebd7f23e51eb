-- claim_lane(slot, …) -> what claim_lane_<slot>(…) returns, with a plan cached per slot. Errors: AW003.
create or replace function {schema}.claim_lane(
    p_slot int, p_queue text, p_priority int, p_limit int, p_max_bytes bigint, p_chunk int, p_runtime uuid,
    p_request bigint
) returns table (
    receipt_id bigint, nonce bigint, job_ids bigint[], kinds text[], bodies text[], bytes bigint)
language plpgsql volatile
as $$
begin
    case p_slot{each_slot}
    when {slot} then
        return query select * from {schema}.claim_lane_{slot}(
            p_queue, p_priority, p_limit, p_max_bytes, p_chunk, p_runtime, p_request);{end_slot}
    end case;
end
$$;
