"""`netinit` on the path of a script that tests run: asks for a fork of the process that has read the modules (prefork.py).

It hands over its arguments, folder, environment, network namespace, stdin, stdout and stderr, and ends as the fork ends.
"""

import json
import os
import socket
import sys

place = os.environ.pop("NETINIT_DOOR")
request = {"words": ["netinit", *sys.argv[1:]], "folder": os.getcwd(), "environ": dict(os.environ)}  # noqa: PTH109 - pathlib takes as long as all the rest
told, telling = os.pipe()
files = [telling, os.open("/proc/self/ns/net", os.O_RDONLY), 0, 1, 2]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
    door.connect(place)
    socket.send_fds(door, [json.dumps(request).encode()], files)
os.close(telling)
os.read(told, 4)  # its process id
sys.exit(os.waitstatus_to_exitcode(int.from_bytes(os.read(told, 4), sys.byteorder)))
