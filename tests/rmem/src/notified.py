#!/usr/bin/python3
# SPDX-License-Identifier: MIT
#
# notified SOCKET FILE: writes into FILE what a service manager is told (sd_notify(3)), a message after the other, line by line.
import os
import socket
import sys

sk = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
with open(sys.argv[2], "w") as file:
    sk.bind(sys.argv[1] + ".new")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    while True:
        file.write(sk.recv(4096).decode() + "\n")
        file.flush()
