# SPDX-License-Identifier: MIT

ALL += build/tests/listen-first.so

build/tests/listen-first.so: tests/tools/src/listen-first.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -shared -fPIC -o $@ $<
