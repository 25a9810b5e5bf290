"""The version of this project: `netinit.__version__`, the package's and the image's."""

from __future__ import annotations

__version__ = "0.2.0"
