copy bare_jobs (kind, args, queue) from stdin
