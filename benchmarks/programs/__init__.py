"""Programs that run in the peers' own environments, and the few lines they share with our own app."""
