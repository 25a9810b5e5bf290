"""Pure code for rules: their model (matches, targets), the layouts that generate them, writing, parsing and comparing them."""
