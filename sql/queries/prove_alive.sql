-- The smallest question a connection can answer.
select 1 as alive
