-- Mark sealed slots in which nothing is left to do -> what was done.
select {schema}.exhaust_slots() as done
