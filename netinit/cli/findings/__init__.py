"""Findings of `lint` and `audit` for pipelines: `codes` lists them, `ignored` accepts some, `formats` writes them."""
