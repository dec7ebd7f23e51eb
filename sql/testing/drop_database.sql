-- Remove a database, whoever is still connected to it.
drop database if exists {name} with (force)
