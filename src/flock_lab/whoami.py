"""Runs inside a lab: ``whoami.py serve`` tells everyone where he came from; the others ask it.

Standard library alone, and no flock: it stands for the programs of users and of the world.
"""

import contextlib
import socket
import socketserver
import sys
import threading
import time

PORT = 8080


class Tell(socketserver.StreamRequestHandler):
    """The peer's address for each line that comes."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            for _ in self.rfile:
                self.wfile.write(self.client_address[0].encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    allow_reuse_address = True
    daemon_threads = True


class TellDatagrams(socketserver.BaseRequestHandler):
    """The peer's address for each datagram."""

    def handle(self) -> None:
        _, sock = self.request
        sock.sendto(self.client_address[0].encode() + b"\n", self.client_address)


class DatagramServer(socketserver.UDPServer):
    address_family = socket.AF_INET6


def serve() -> None:
    datagrams = DatagramServer(("::", PORT), TellDatagrams)
    threading.Thread(target=datagrams.serve_forever, daemon=True).start()
    with Server(("::", PORT), Tell) as server:
        print("ready", flush=True)
        server.serve_forever()


def ask(kind: str, target: str) -> None:
    """Once, and print the answer."""
    how = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET, how) as sock:
        sock.settimeout(3.0)
        sock.connect((target, PORT))
        sock.sendall(b"\n")
        print(sock.recv(100).decode(), end="")


def talk(target: str) -> None:
    """Over one connection until it breaks: an answer every 20 ms, with the time at which it came."""
    pause = threading.Event()
    with socket.create_connection((target, PORT), timeout=5.0) as sock:
        while True:
            sock.sendall(b"\n")
            answer = sock.recv(100)
            if not answer:
                return
            print(time.monotonic(), answer.decode(), end="", flush=True)
            pause.wait(0.02)


def knock(target: str) -> None:
    """Datagrams from one port, one every 20 ms, until one is answered."""
    print("knocking", flush=True)
    with socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.02)
        sock.connect((target, PORT))
        while True:
            with contextlib.suppress(OSError):
                sock.sendall(b"\n")
                print(sock.recv(100).decode(), end="", flush=True)
                return


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["talk", target]:
            talk(target)
        case ["knock", target]:
            knock(target)
        case [kind, target]:
            ask(kind, target)
        case _:
            sys.exit("whoami.py serve | talk TARGET | knock TARGET | tcp TARGET | udp TARGET")
