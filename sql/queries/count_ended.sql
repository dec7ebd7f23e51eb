-- How many failed or cancelled jobs of the history a filter takes in, by reason, and the database's time.
select jobs, reasons::text, counted_at
from {schema}.count_ended(
    %(state)s::text, %(kind)s::text, %(queue)s::text, %(tag)s::text, %(reason)s::text, %(after)s::timestamptz,
    %(before)s::timestamptz)
