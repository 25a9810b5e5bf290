"""Read everything in a network namespace that affects packets: see `reading`. Imports nothing, for a second `apply`."""
