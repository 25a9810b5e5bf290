"""Pictures of the chains: a tree for the terminal, Mermaid, DOT and SVG, with a packet's path highlighted on demand."""

from __future__ import annotations

from collections.abc import Callable

from netinit.draw.dot import render_dot
from netinit.draw.mermaid import render_mermaid
from netinit.draw.picture import Picture, make_picture
from netinit.draw.svg import render_svg
from netinit.draw.text import render_text

FORMATS: dict[str, Callable[[Picture], str]] = {
    "text": render_text,
    "mermaid": render_mermaid,
    "dot": render_dot,
    "svg": render_svg,
}

__all__ = ["FORMATS", "Picture", "make_picture", "render_dot", "render_mermaid", "render_svg", "render_text"]
