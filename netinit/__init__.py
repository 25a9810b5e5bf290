"""netinit: the interception layer of a service mesh pod.

Options become a plan (pure data); a plan is rendered, applied, observed and compared. The public names are imported
when they are first asked for, so that starting the init container costs only what it uses (PEP 562).
"""

from __future__ import annotations

__version__ = "0.1.0"
