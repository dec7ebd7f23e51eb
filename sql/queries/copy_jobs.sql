-- The COPY road for the largest loads; say notify_waiters afterwards, in the same transaction.
copy {schema}.jobs_ready (kind, args, queue, priority, max_attempts, metadata, tags, ordering_key) from stdin
