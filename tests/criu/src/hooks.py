# SPDX-License-Identifier: MIT
"""hooks.py CRIU NEW: makes NEW, a copy of CRIU that seems to have one hook more, as CRIU 4.2 has."""
import shutil
import struct
import subprocess
import sys

criu, new = sys.argv[1:]


def readelf(*options):
    lines = subprocess.run(['readelf', '-W', *options, criu], check=True, capture_output=True, text=True).stdout
    return [line.replace('[ ', '[').split() for line in lines.splitlines()]


[table] = [int(line[4], 16) for line in readelf('-S') if len(line) > 4 and line[1] == '.dynsym']
[(number, size)] = [(int(line[0][:-1]), int(line[2])) for line in readelf('--dyn-syms') if line[-1:] == ['cr_plugin_ctl']]
shutil.copy(criu, new)
with open(new, 'r+b') as file:
    file.seek(table + 24 * number + 16)  # Elf64_Sym's st_size
    assert struct.unpack('<Q', file.read(8)) == (size,)
    file.seek(-8, 1)
    file.write(struct.pack('<Q', size + 16))
