"""What everything stands on: errors, records, the event log, addresses, trees of documents. Imports nothing else of netinit."""
