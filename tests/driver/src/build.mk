# SPDX-License-Identifier: MIT
# Programs that the tests run in the guests.

traffic_src := $(wildcard tests/driver/src/traffic*.c)

ALL += build/tests/traffic build/tests/ioctl_fuzz

build/tests/traffic: $(traffic_src) tests/driver/src/traffic.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $(traffic_src) -libverbs -pthread && mv $@.new $@

build/tests/ioctl_fuzz: tests/driver/src/ioctl_fuzz.c $(verbs_headers)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(VERBS_CFLAGS) -o $@.new $< -libverbs -pthread && mv $@.new $@
