"""`netinit kubectl`, which kubectl runs as `kubectl netinit`; it asks the cluster through the user's kubectl."""
