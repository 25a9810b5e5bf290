"""The public calls, `netinit.explain`, `audit`, `check`, `diff`, `lint` and `verify`: one call gives what the command prints.

Each call reads what its question needs of the machine, which is manifests, live rules in a bounded child and the record of the
node's agent, and hands it to `questions` as values. The commands use the same readers. May import all rooms but cli and kubectl;
knows no command line.
"""
