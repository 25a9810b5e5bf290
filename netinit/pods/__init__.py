"""What is done to a live pod: apply, remove, verify, validate, look inside, probe, and the doctor.

May import backends, kernel, simulate, rules, options and base; knows nothing of command lines.
"""
