"""The process that a lab host is: PID 1 of its own namespaces, asleep, and everything of the host ends with it.

Inside, the folders that flock's fixed paths lie in are the host's own, in memory; the machine's files are seen below
them, read-only in effect, and nothing is ever made on the machine's disk. Needs util-linux, iproute2 and overlayfs.

If the process dies on any line: ``unshare --kill-child`` ends the sleeper, and its namespaces go with it; a sleeper
without a record is found by the token in its environment.
"""

import os
import select
import subprocess
from pathlib import Path

from flock_lab.state import LabError, LabRecord, ProcessMark

# The outer PID is read before /proc is the namespace's own. In a chroot `/` is no mount point and can't be made
# private; the mounts below are looked at instead, since a shared one would be seen outside.
# PID 1 ignores SIGCHLD, also through exec, so orphans leave no zombies.
_SETUP = r"""
set -eu
test -e "$2"
read -r outer rest </proc/self/stat
mount --make-rprivate / 2>/dev/null || :
mount -t proc proc /proc
mount -t tmpfs -o mode=755 lab /run
if grep -q ' /run [^-]*shared:' /proc/self/mountinfo; then
  umount /run; umount /proc
  echo "the mounts of this root are shared with the machine: enter it by unshare --mount chroot ROOT" >&2
  exit 1
fi
mkdir -p /run/.lab/cgroup /run/netns /run/lock
if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup /run/.lab/cgroup; fi
mount -t sysfs sysfs /sys
if [ -d /sys/fs/cgroup ]; then mount --move /run/.lab/cgroup /sys/fs/cgroup 2>/dev/null || :; fi
for dir in /etc /opt /var/lib; do
  mkdir -p "/run/.lab/upper$dir" "/run/.lab/work$dir"
  mount -t overlay -o "lowerdir=$dir,upperdir=/run/.lab/upper$dir,workdir=/run/.lab/work$dir" lab "$dir"
done
for dir in /etc/flock /opt/cni/bin /etc/cni/net.d /var/lib/cni; do
  mkdir -p "$dir"
  mount -t tmpfs -o mode=755 lab "$dir"
done
mkdir -p /etc/flock/bird /etc/flock/manifests
hostname "$1"
ip link set lo up
trap '' CHLD
echo "$outer"
exec sleep infinity >/dev/null
"""
_UNSHARE = ("unshare", "--mount", "--propagation", "unchanged", "--net", "--pid", "--uts", "--fork", "--kill-child")
_LIMIT = 30.0


Popen = subprocess.Popen[bytes]


def start(record: LabRecord, host: str) -> Popen:
    """Start a holder without waiting for it; its log says why one failed."""
    with log_path(record, host).open("ab") as log:
        return subprocess.Popen(
            [*_UNSHARE, "--", "sh", "-c", _SETUP, "flock-lab", host, str(record.permit)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            env={**os.environ, **record.environment()},
        )


def await_ready(record: LabRecord, host: str, process: Popen) -> ProcessMark:
    """The mark of the sleeper once its namespaces are complete; LabError with the reason otherwise."""
    assert process.stdout is not None
    with process.stdout:
        readable, _, _ = select.select([process.stdout], [], [], _LIMIT)
        line = process.stdout.readline() if readable else b""
    mark = ProcessMark.of(int(line)) if line.strip().isdigit() else None
    if mark is None:
        reason = log_path(record, host).read_text(errors="replace").strip()
        raise LabError(f"the host {host} can't be made", reason or f"not within {_LIMIT:g} s")
    record.note_holder(host, mark)
    return mark


def log_path(record: LabRecord, host: str) -> Path:
    return record.folder / f"{host}.log"


def enter_argv(mark: ProcessMark, argv: list[str], netns: str | None = None) -> list[str]:
    """The command line that runs ``argv`` in a host, or in one of its pods' namespaces: for a terminal.

    It stays in the folder where it was called, if the host has that (not below /run, which is the host's own).
    """
    here = Path.cwd()
    there = here if Path(f"/proc/{mark.pid}/root{here}").is_dir() else Path("/")
    inner = ["nsenter", f"--net=/run/netns/{netns}", "--", *argv] if netns else argv
    spaces = ("--mount", "--net", "--pid", "--uts", "--root", f"--wdns={there}")
    return ["nsenter", f"--target={mark.pid}", *spaces, "--", *inner]
