-- yield_keys(keyed jobs, low, high, for_good) -> bit i for each of these whose place is low + i, up to high, and whose completion
-- will change who holds its key; null for none. They are being claimed: those whose mask has available and not running give
-- their keys up now, but for a claim that goes back at once (for_good = false).
-- That there ever was such a bit is kept in a sequence, which complete asks. A claim that is rolled back leaves the mark: it
-- only costs a look.
-- Guard: the caller's, which claims the jobs. Locks: the rows of unique_claims. Errors: none.
create or replace function {schema}.yield_keys(
    p_keyed {schema}.keyed_job[], p_low int, p_high int, p_for_good boolean
) returns bigint
language plpgsql volatile
set search_path = {schema}, pg_catalog, pg_temp
as $$
declare
    v_keys bytea[];
    v_ids bigint[];
    v_bits bigint;
begin
    select
        array_agg(k.unique_key order by k.unique_key) filter (where not states_hold(k.states, 'running')),
        array_agg(k.job_id order by k.unique_key) filter (where not states_hold(k.states, 'running')),
        bit_or(1::bigint << (k.place - p_low)::int)
            filter (where states_hold(k.states, 'running') <> states_hold(k.states, 'completed'))
    into v_keys, v_ids, v_bits
    from unnest(p_keyed) as k
    where k.place between p_low and p_high;
    if v_keys is not null and p_for_good then
        perform drop_keys(v_keys, v_ids);
    end if;
    if v_bits is not null and pg_sequence_last_value('{schema_text}.yielding_seq'::regclass) is null then
        perform nextval('{schema_text}.yielding_seq');
    end if;
    return v_bits;
end
$$;
