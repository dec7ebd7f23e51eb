-- key_bits(keyed jobs, low, high) -> bit i for each of these whose place is low + i, up to high; null for none.
-- Guard: none. Locks: none. Errors: none. Called for claims that have a keyed job.
create or replace function {schema}.key_bits(p_keyed {schema}.keyed_job[], p_low int, p_high int) returns bigint
language sql immutable
as $$
    select bit_or(1::bigint << (k.place - p_low)::int) from unnest(p_keyed) as k where k.place between p_low and p_high
$$;
