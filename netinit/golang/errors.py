"""What is wrong with a text in one of Go's languages."""

from __future__ import annotations


class YamlError(Exception):
    """A YAML text cannot be read, or exceeds a limit; the message has line and column."""


class TemplateError(Exception):
    """A template cannot be parsed or rendered; worded as in Go, with name, line and column."""
