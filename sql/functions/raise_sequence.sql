-- raise_sequence(name, least, gap) -> nothing: the next value of that sequence of ours is above both its last and `least`, by more
-- than the gap. Guard: none. Locks: none. Errors: none.
create or replace function {schema}.raise_sequence(p_name text, p_least bigint, p_gap bigint) returns void
language plpgsql volatile
as $$
declare
    v_sequence regclass := format('%I.%I', {schema_name}, p_name)::regclass;
begin
    perform setval(v_sequence, greatest(pg_sequence_last_value(v_sequence), p_least, 1) + p_gap);
end
$$;
