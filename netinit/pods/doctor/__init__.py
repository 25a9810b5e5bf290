"""The doctor: test whether pods will work here, and report what is missing with the remedy."""

from __future__ import annotations

from netinit.pods.doctor.brief import summarise

__all__ = ["summarise"]  # the full examination is in netinit.pods.doctor.examination; a failing start needs only this
