# SPDX-License-Identifier: MIT
# The programs that tests run, each folder's its own.
include $(wildcard tests/*/src/build.mk)
