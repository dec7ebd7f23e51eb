-- The COPY road for the largest loads, into what copy_target named; say notify_waiters afterwards, in the same transaction.
-- Its rows are UTF-8, whatever the caller's session takes texts for.
copy {target} (kind, args, queue, priority, max_attempts, metadata, tags, ordering_key, deadline_s)
from stdin (encoding 'UTF8')
