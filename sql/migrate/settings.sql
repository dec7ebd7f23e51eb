-- Functions may name each other in any order: bodies are checked when they run.
set local check_function_bodies = off
