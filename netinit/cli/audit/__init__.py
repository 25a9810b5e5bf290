"""`netinit audit`: `command` runs it, `report` collects the results, `formats` writes them."""
