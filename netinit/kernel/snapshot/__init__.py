"""Read everything in a network namespace that affects packets, as one value: see `reading`.

One module for each part of the kernel. Nothing is imported here: a second `apply` needs legacy tables only.
"""
