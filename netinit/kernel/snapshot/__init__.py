"""Read everything in a network namespace that affects packets: see `reader`. Imports nothing, for a second `apply`."""
