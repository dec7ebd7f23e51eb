-- Take or renew the leadership of that name -> whether the holder leads now.
select {schema}.lead(%(name)s::text, %(holder)s::uuid, %(ttl_s)s::float8) as leads
