"""Simulates what the kernel does with packets under given rules; what cannot be decided is UNKNOWN. Pure."""
