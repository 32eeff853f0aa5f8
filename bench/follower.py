"""A program for ``bench.scale``: all that an agent has in memory, and a source that follows every pod of a cluster.

Answers each line that it reads with one of JSON: ``raw`` reads the pods' pages and keeps nothing, ``follow`` begins to
follow and waits until the view is complete, anything else just counts.
"""

import asyncio
import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

from flock.agent.app import Agent
from flock.agent.main import NICENESS
from flock.cluster.access import ClusterAccess, StaticToken
from flock.cluster.client import ApiClient
from flock.cluster.kube import KubeSource
from flock.cluster.tls import Tls, TlsSettings
from flock.system.clock import SystemClock

__all__ = ["Agent"]


def figures(source: KubeSource) -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    status = Path("/proc/self/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith("Vm")}
    return {"rss": kib["VmRSS"] / 1024, "peak": kib["VmHWM"] / 1024, "cpu": used.ru_utime + used.ru_stime,
            "time": time.monotonic(), "peers": len(source.peers), "pods": len(source.view.snapshot.pods)}


async def main(server: str, ca: str, token: str, node: str) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    gc.freeze()
    access = ClusterAccess(server, tls=Tls(TlsSettings(ca=Path(ca))), tokens=StaticToken(token))
    client = ApiClient(access, SystemClock())
    loop = asyncio.get_running_loop()
    source = KubeSource(client, node, loop, with_policy=True)
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).strip():
        began = time.monotonic()
        size = 0
        if line == b"raw":
            async for page in client.list("/api/v1/pods", {}):
                size += len(page)
        elif line == b"follow":
            await source.start()
            await source.listed()
        print(json.dumps({"seconds": time.monotonic() - began, "bytes": size, **figures(source)}), flush=True)
    source.close()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
