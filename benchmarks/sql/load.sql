-- Bulk load through the product's own COPY target.
copy awa_pool.jobs_ready (kind, args, queue) from stdin
