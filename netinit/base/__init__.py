"""What everything stands on: errors, records, the event log, addresses and networks. Imports nothing else of netinit."""
