"""Pure rules: what they are (model, matches, targets), how they come about (layouts), how they are written and compared."""
