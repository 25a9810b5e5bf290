"""Rulesets in the dialect of nft: a plan written as nft lists it (writer), and nft's JSON listings (listing)."""
