-- tags_flaw(text[]) -> text: what is wrong with a job's tags, or null.
-- Guard: none. Locks: none. Errors: none.
create or replace function {schema}.tags_flaw(p_tags text[]) returns text
language sql immutable
set search_path = {schema}, pg_catalog, pg_temp
as $$
    select case
        when cardinality(p_tags) = 0 then null
        when array_ndims(p_tags) <> 1 then 'must be a flat list'
        when cardinality(p_tags) > 20 then format('has %s entries; at most 20 are allowed', cardinality(p_tags))
        when array_position(p_tags, null) is not null then 'must not hold null'
        when exists (select from unnest(p_tags) as t where length(t) not between 1 and 200)
            then 'each tag must have 1 to 200 characters'
    end
$$;
