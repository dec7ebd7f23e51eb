-- Where the COPY of this transaction goes.
select {schema}.copy_target()
