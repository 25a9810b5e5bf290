"""The core's inner names that several tests need, imported in one place."""

from __future__ import annotations

from netinit.options import Options
from netinit.render import render_restore
from netinit.rules.layouts import plan
from netinit.rules.network import IPV4, IPV6
from netinit.rules.nft.writer import render_script
from netinit.rules.sets import render_preparation, use_sets

__all__ = ["IPV4", "IPV6", "Options", "plan", "render_preparation", "render_restore", "render_script", "use_sets"]
