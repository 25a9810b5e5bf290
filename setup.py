"""What pyproject.toml cannot say: every build starts from nothing.

setuptools copies modules into build/ of the checkout and packs whatever lies there, including modules that were removed or renamed
since the last build. This build has a folder of its own for each run, and leaves none.
"""

from __future__ import annotations

import tempfile

from setuptools import setup
from setuptools.command.build import build


class FreshBuild(build):
    """Builds in a temporary folder, which is removed when the process ends."""

    def initialize_options(self) -> None:
        """Sets the folder that those of libraries, scripts and the wheel lie in."""
        super().initialize_options()
        self.folder = tempfile.TemporaryDirectory(prefix="netinit-build-")
        self.build_base = self.folder.name


setup(cmdclass={"build": FreshBuild})
