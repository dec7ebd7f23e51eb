"""A worker process: runs user code and nothing else, without a database connection of the queue's own."""
