"""Operations on live pods: apply, remove, verify, validate, probe, trace, doctor.

May import backends, kernel, simulate, rules, options and base; knows nothing of command lines.
"""
