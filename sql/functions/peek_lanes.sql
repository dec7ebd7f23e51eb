-- peek_lanes(slot, queue) -> what peek_lanes_<slot>(queue) returns, with a plan cached per slot. Errors: none.
create or replace function {schema}.peek_lanes(p_slot int, p_queue text) returns int
language plpgsql volatile
as $$
begin
    case p_slot{each_slot}
    when {slot} then return {schema}.peek_lanes_{slot}(p_queue);{end_slot}
    end case;
end
$$;
