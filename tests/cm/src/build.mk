# SPDX-License-Identifier: MIT

ALL += build/tests/cm-idle

build/tests/cm-idle: tests/cm/src/cm-idle.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@ $< -lrdmacm -libverbs -pthread
