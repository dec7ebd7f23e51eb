-- retry_delay_s(attempt) -> seconds before the next try: 2^attempt plus up to a quarter, at most 24 hours.
-- Guard: none. Locks: none. Errors: none. The exponent is capped first: 2^1000 is no number.
create or replace function {schema}.retry_delay_s(p_attempt int) returns float8
language sql volatile
as $$
    select least(86400.0, power(2.0::float8, least(greatest(p_attempt, 0), 17)) * (1.0 + random() * 0.25))
$$;
