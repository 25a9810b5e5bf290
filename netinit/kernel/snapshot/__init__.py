"""Reads everything in a network namespace that decides about packets, as one value: see `reading`.

Each part of the kernel that is asked has a module. Nothing is imported here: a second `apply` asks for legacy tables alone.
"""
