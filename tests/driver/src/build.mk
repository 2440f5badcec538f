# SPDX-License-Identifier: MIT
# Programs that the tests run in the guests.

BUILD ?= build
traffic_src := $(wildcard tests/driver/src/traffic*.c)

ALL += $(BUILD)/tests/traffic

$(BUILD)/tests/traffic: $(traffic_src) tests/driver/src/traffic.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(BUILD)/tests
	$(Q)$(CC) $(CFLAGS) -o $@.new $(traffic_src) -libverbs -pthread && mv $@.new $@
