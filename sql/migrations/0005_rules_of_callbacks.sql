-- callback_rules: the expressions that say what an answer to the newest callback comes to, by the names of their arguments
-- (filter, on_complete, on_fail, transform); null: none. They are for clients that can evaluate them: no function here does.
alter table {schema}.leases add column callback_rules json;
