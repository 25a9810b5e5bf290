"""Finds traffic that bypasses the proxy, its cause and remedy; proves or refutes assertions about traffic. Pure."""
