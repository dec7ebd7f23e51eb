-- bit_count_of(mask) -> how many bits are set. (bit_count is in PostgreSQL from 14 on, for bit strings.)
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.bit_count_of(p_mask bigint) returns bigint
language sql immutable
as $$
    select bit_count(p_mask::bit(64))
$$;
