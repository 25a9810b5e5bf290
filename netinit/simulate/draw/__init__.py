"""Drawings of the chains for the terminal, Mermaid and Graphviz, with a packet's path highlighted."""

from __future__ import annotations

from netinit.simulate.draw.graphs import render_dot, render_mermaid
from netinit.simulate.draw.picture import Picture, make_picture, render_text

__all__ = ["Picture", "make_picture", "render_dot", "render_mermaid", "render_text"]
