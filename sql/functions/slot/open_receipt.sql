-- open_receipt_<slot>(above) -> the smallest id of a receipt above that one with an attempt still open, or null.
-- Locks: none. Errors: none.
create or replace function {schema}.open_receipt_{slot}(p_above bigint) returns bigint
language plpgsql volatile
set enable_seqscan = off
as $$
begin
    return (select r.receipt_id from {schema}.receipts_{slot} as r
             where r.receipt_id > p_above and r.closed <> (9223372036854775807 >> (63 - r.n))
             order by r.receipt_id limit 1);
end
$$;
