"""The common base: errors, records, the event log, addresses, trees of documents. Imports nothing else of netinit."""
