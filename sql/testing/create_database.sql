-- An empty database.
create database {name}
