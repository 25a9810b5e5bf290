"""Findings of `lint` and `audit` for pipelines: `codes` lists them, `ignored` takes some out, `formats` writes them."""
