"""`netinit audit`: `command` asks, `report` says what was found, `text`, `markdown` and `page` (HTML) show it."""
