"""The cluster's API on this machine's loopback, for a person's kubectl: connections are passed on into the lab.

``python -m flock_lab.kube.forward NETNS ADDRESS PORT`` prints its own port and stays. Invariant: one thread alone is in
the lab's network namespace, and makes connections there.

If the process dies on any line: it is found by the lab's token, as everything of a lab.
"""

import asyncio
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flock_lab.host import Host
from flock_lab.netns import enter
from flock_lab.state import LabError

_CHUNK = 65536
_LIMIT = 10.0


def start(host: Host, address: str, port: int) -> int:
    """Start one that outlives this process and hand back its port."""
    argv = [sys.executable, "-m", "flock_lab.kube.forward", str(host.netns), address, str(port)]
    with open(host.log("forward"), "ab") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                   start_new_session=True, env={**os.environ, **host.record.environment()})
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline().strip()
    if not line.isdigit():
        raise LabError("the API can't be passed on to this machine", host.tail("forward"))
    return int(line)


async def _serve(netns: Path, address: str, port: int) -> None:
    inside = ThreadPoolExecutor(1, initializer=enter, initargs=(netns,))

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connecting = asyncio.get_running_loop().run_in_executor(
            inside, lambda: socket.create_connection((address, port), _LIMIT))
        try:
            connection = await connecting
            connection.setblocking(False)
            there, back = await asyncio.open_connection(sock=connection)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, back), _pump(there, writer))

    server = await asyncio.start_server(passed_on, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Until either side ends; then both do."""
    try:
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
