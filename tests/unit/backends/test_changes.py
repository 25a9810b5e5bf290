"""What a backend is given to commit or to put back."""

from __future__ import annotations

import pytest

from core import plan
from netinit.backends import Change
from netinit.backends.ipset import LegacyVariantWithSets
from netinit.backends.libiptc import LibiptcBackend
from netinit.backends.nftables import NftablesBackend
from netinit.options import Options


@pytest.mark.parametrize("kind", [LegacyVariantWithSets, LibiptcBackend, NftablesBackend])
def test_the_change_of_another_backend_is_refused(kind):
    backend = kind(threshold=3) if kind is LegacyVariantWithSets else kind()
    foreign = Change(scripts={}, before=None, plan=plan(Options.from_argv(["-b", "*"])))
    with pytest.raises(TypeError, match="the change of another backend"):
        backend.commit(foreign)
