#!/usr/bin/python3
# SPDX-License-Identifier: MIT
#
# silent HOST PORT N: opens so many connections. Of each three, one says nothing, one says half of a hello, and one goes on
# with a byte a second. Says "open", and when all are closed how many were closed at once, and after how long the others.
import selectors
import socket
import sys
import time

host, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
look = selectors.DefaultSelector()
slow, closed = [], []
last = time.monotonic()
for i in range(number):
    begun = time.monotonic()
    sk = socket.create_connection((host, port))
    sk.setblocking(False)
    if i % 3 == 1:
        sk.send(b"x" * 50)
    if i % 3 == 2:
        slow.append(sk)
    look.register(sk, selectors.EVENT_READ, begun)


def drop(sk, begun):
    look.unregister(sk)
    closed.append(time.monotonic() - begun)
    if sk in slow:
        slow.remove(sk)


print("open", flush=True)
while look.get_map():
    for key, _ in look.select(1):
        try:
            if not key.fileobj.recv(100):
                drop(key.fileobj, key.data)
        except ConnectionError:
            drop(key.fileobj, key.data)
    if time.monotonic() - last >= 1:
        last = time.monotonic()
        for sk in slow:
            try:
                sk.send(b"x")
            except OSError:
                pass
rest = [t for t in closed if t >= 5]
print("closed: %d at once, the others after %d to %d s" % (len(closed) - len(rest), min(rest), max(rest)))
