# SPDX-License-Identifier: MIT

ALL += build/tests/criu-count.so

build/tests/criu-count.so: tests/criu/src/criu-count.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -fPIC -shared -o $@ $<
