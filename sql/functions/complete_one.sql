-- complete_one(slot, receipt, nonce, bit) -> what complete_one_<slot> returns, with a plan cached per slot; false for a slot that
-- is none. Errors: 55P03 as the caller sets it.
create or replace function {schema}.complete_one(p_slot int, p_receipt bigint, p_nonce bigint, p_bit bigint) returns boolean
language plpgsql volatile
as $$
begin
    case p_slot{each_slot}
    when {slot} then return {schema}.complete_one_{slot}(p_receipt, p_nonce, p_bit);{end_slot}
    else return false;
    end case;
end
$$;
