"""`netinit audit`: `command` runs it, `report` collects the results, `text` and `page` (HTML) format them."""
