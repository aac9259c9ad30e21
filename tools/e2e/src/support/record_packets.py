"""Records every packet of a network interface: prints `ready`, then writes packets to a file."""

import socket
import sys

interface, path = sys.argv[1:]
ALL_PROTOCOLS = 3
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
packets.bind((interface, 0))
with open(path, "wb", buffering=0) as file:
    print("ready", flush=True)
    while True:
        file.write(packets.recv(65536))
