-- rules_of_callback(callback) -> (job_id, number, state, rules) of the open callback, whose row stays locked until the transaction ends: for a
-- client that evaluates the rules, and then answers or lets be. rules: null where it has none.
-- Arrow: none. Guard: the callback (held_callback). Locks: its lease row. Errors: AW002, AW008.
create or replace function {schema}.rules_of_callback(
    p_callback text, out job_id bigint, out number int, out state text, out rules json)
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v leases := held_callback(p_callback, false);
begin
    job_id := v.job_id;
    number := v.callback_no;
    state := v.state;
    rules := v.callback_rules;
end
$$;
