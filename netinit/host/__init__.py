"""What netinit does to the machine it runs on; everything here has effects."""
