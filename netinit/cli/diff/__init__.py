"""`netinit diff`: `sides` reads what to compare, `command` runs it and formats the differences."""
