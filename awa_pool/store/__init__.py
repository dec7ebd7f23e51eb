"""The only door to PostgreSQL: statements, connections, and threads that answer with events."""
