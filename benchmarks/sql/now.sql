-- The server's clock.
select clock_timestamp()
