"""The program as tests start it: forked by a process that has read the modules."""

import os
import subprocess
import sys
from pathlib import Path

import prefork

ASK = "import prefork; done = prefork.run(['--version']); print(done.returncode, done.stdout, done.stderr)"


def test_without_privileges_a_command_runs_in_the_namespace_where_one_is():
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
    done = subprocess.run(
        [*without, sys.executable, "-c", ASK], cwd=Path(prefork.__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("0 netinit "), done
