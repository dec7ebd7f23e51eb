-- try_ring_lock() -> whether this transaction now owns the ring: rotate, exhaust, sweep, prune and move take turns.
-- Errors: none.
create or replace function {schema}.try_ring_lock() returns boolean
language plpgsql volatile
as $$
begin
    return pg_try_advisory_xact_lock(1635202371, hashtext({schema_name}));
end
$$;
