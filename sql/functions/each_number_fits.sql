-- each_number_fits(json) -> boolean: whether every integer in it fits 64 bits, signed (a reader would turn others into floats), and every
-- other number a float.
-- Guard: none. Locks: none. Errors: none. Asked by numbers_fit.
create or replace function {schema}.each_number_fits(p_document json) returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select not exists (
        select from regexp_matches(
            regexp_replace(p_document::text, e'"(?:[^"\\\\]|\\\\.)*"', '""', 'g'), e'-?\\d[\\d.eE+-]*', 'g') as n(number)
        where case
            when n.number[1] ~ e'^-?\\d{19,}$'
                then n.number[1]::numeric not between -9223372036854775808 and 9223372036854775807
            when n.number[1] ~ e'[eE]\\+?\\d{4,}$' then true
            when n.number[1] ~ e'[eE]\\+?\\d{3}$' or length(n.number[1]) > 255 then abs(n.number[1]::numeric) > 1.7976931348623157e308
        end)
$$;
