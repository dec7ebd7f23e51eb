-- A database that begins as another one is; nobody may be connected to that one.
create database {name} template {template}
