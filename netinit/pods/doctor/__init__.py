"""The doctor: whether pods will work here, tried and not guessed; and what is missing, with the remedy."""

from __future__ import annotations

from netinit.pods.doctor.brief import summarise

__all__ = ["summarise"]  # the whole examination is in netinit.pods.doctor.examination; a failing start needs only this
