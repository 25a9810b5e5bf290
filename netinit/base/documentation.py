"""The addresses of the documentation's pages: those of this version, since pages change with what they describe."""

from __future__ import annotations

from netinit.base.version import __version__

SITE = "https://netinit.io/docs"
"""Where the documentation is published, a folder for each version; `site_url` of mkdocs.yml is the same."""


def address_of(page: str, anchor: str = "") -> str:
    """Return the address of a page, such as `commands/lint`, or of an anchor of it."""
    return f"{SITE}/{__version__}/{page}.html{f'#{anchor}' if anchor else ''}"
