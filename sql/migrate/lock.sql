-- Serialise migrators of one schema for the length of the transaction.
select pg_advisory_xact_lock(1635202369, hashtext({schema_name}))
