-- unique_flaw(key, states, on_conflict) -> text: "field: what is wrong", or null.
-- A mask with running has available too: else a claim, which waits for nothing, would have to take keys.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.unique_flaw(p_key bytea, p_states int, p_on_conflict text) returns text
language sql immutable
as $$
    select case
        when p_on_conflict is null or p_on_conflict not in ('raise', 'skip') then 'on_conflict: must be raise or skip'
        when p_key is null then case when p_states is not null then 'unique_key: is missing beside unique_states' end
        when octet_length(p_key) <> 16 then 'unique_key: must have 16 bytes'
        when p_states not between 1 and 255 then 'unique_states: must be 1 to 255'
        when p_states & 6 = 4 then 'unique_states: with running (bit 2) must have available (bit 1) too'
    end
$$;
