"""`netinit audit`: `command` runs it, `formats` writes Markdown and a page."""
