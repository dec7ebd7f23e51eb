-- key_bits(places, masks, low, high, yielding) -> bit i for each of these places that is low + i, up to high; null for none.
-- With `yielding` only those whose completion changes who holds the key: running and completed differ in the mask.
-- Guard: none. Locks: none. Errors: none. Called for claims that have a keyed job.
create or replace function {schema}.key_bits(
    p_places bigint[], p_masks int[], p_low int, p_high int, p_yielding boolean
) returns bigint
language sql immutable
set search_path = {schema}, pg_catalog, pg_temp
as $$
    select nullif(coalesce(bit_or(1::bigint << (k.place - p_low)::int), 0), 0)
    from unnest(p_places, p_masks) as k(place, mask)
    where k.place between p_low and p_high
        and (not p_yielding or states_hold(k.mask, 'running') <> states_hold(k.mask, 'completed'))
$$;
