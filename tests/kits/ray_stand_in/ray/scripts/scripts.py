"""``ray start --head --block``, as far as a local cluster needs it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ray

if ray.cluster().get("start") == "fails":
    sys.exit("OSError: cannot bind the port of the GCS server")
assert "RAY_ADDRESS" not in os.environ
state = ray.cluster()
state["token"] = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text()
ray.write(state)
if ray.cluster().get("stubborn"):  # a process below it outlives SIGTERM, as Ray's may
    subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("Ray runtime started.", flush=True)
while True:
    time.sleep(60)
