"""Drawings of the chains for the terminal, Mermaid and Graphviz, with a packet's path highlighted."""

from __future__ import annotations

from netinit.simulate.draw.dot import render_dot
from netinit.simulate.draw.mermaid import render_mermaid
from netinit.simulate.draw.picture import Picture, make_picture
from netinit.simulate.draw.text import render_text

__all__ = ["Picture", "make_picture", "render_dot", "render_mermaid", "render_text"]
