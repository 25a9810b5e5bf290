"""What the kernel would do with a packet: pure, by its own order of hooks, and never by guessing."""
