-- End attempts with their follow-ups, a transaction each -> one row: an answer for each, in order.
call {schema}.finish_staged(%(ends)s::json, %(patience_ms)s::int, null)
