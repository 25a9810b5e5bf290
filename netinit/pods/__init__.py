"""Operations on live pods: apply, remove, verify, validate, read live rules, probe, trace, and the doctor.

May import backends, kernel, simulate, rules, options and base; knows nothing of command lines.
"""
