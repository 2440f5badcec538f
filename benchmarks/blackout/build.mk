# SPDX-License-Identifier: MIT

ALL += build/bench/twin

build/bench/twin: benchmarks/blackout/twin.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $< && mv $@.new $@
