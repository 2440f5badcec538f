# SPDX-License-Identifier: MIT
# The programs that tests run: those that several folders use, then each folder's own.
include tests/programs/build.mk $(wildcard tests/*/src/build.mk)
