-- clip_text(text, bytes) -> the text, shortened to at most so many bytes of UTF-8 where it is longer.
-- Guard: none. Locks: none. Errors: none. Text beyond ASCII is cut at a quarter: no character is longer than four bytes.
create or replace function {schema}.clip_text(p_text text, p_bytes int) returns text
language sql immutable
as $$
    select case
        when octet_length(p_text) <= p_bytes then p_text
        when octet_length(left(p_text, p_bytes)) <= p_bytes then left(p_text, p_bytes)
        else left(p_text, p_bytes / 4)
    end
$$;
