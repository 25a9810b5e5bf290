"""Simulates what the kernel does with packets under given rules; undecidable outcomes are UNKNOWN. Pure."""
