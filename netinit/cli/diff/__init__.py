"""`netinit diff`: `command` asks, `sides` reads what is compared, `report` shows what is treated differently."""
