"""`netinit diff`: `command` runs it, `sides` reads what to compare, `report` formats the differences."""
