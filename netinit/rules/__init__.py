"""Rules, pure: matches and targets, the layouts that generate rules, writing, parsing and comparing them."""
