"""Pictures of the chains: a tree for the terminal, Mermaid and DOT, with a packet's path highlighted on demand."""

from __future__ import annotations

from netinit.draw.dot import render_dot
from netinit.draw.mermaid import render_mermaid
from netinit.draw.picture import Picture, make_picture
from netinit.draw.text import render_text

__all__ = ["Picture", "make_picture", "render_dot", "render_mermaid", "render_text"]
