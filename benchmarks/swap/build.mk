# SPDX-License-Identifier: MIT

ALL += $(BUILD)/bench/swap-bench

$(BUILD)/bench/swap-bench: benchmarks/swap/swap-bench.c tests/programs/random.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE -Wshadow -Wmissing-prototypes -Wstrict-prototypes -o $@.new $< && mv $@.new $@
