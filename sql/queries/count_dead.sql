-- How many dead jobs a filter takes in, by reason, and the database's time.
select jobs, reasons::text, counted_at
from {schema}.count_dead(
    %(ids)s::bigint[], %(kind)s::text, %(queue)s::text, %(tag)s::text, %(reason)s::text, %(after)s::timestamptz,
    %(before)s::timestamptz)
