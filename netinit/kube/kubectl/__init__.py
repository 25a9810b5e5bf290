"""A cluster asked by way of the user's own kubectl: which pods are meant, and what names mean there.

`program` starts kubectl; `objects` reads what it prints, pure; `destinations` turns names into addresses. No HTTP library.
"""
