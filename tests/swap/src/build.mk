# SPDX-License-Identifier: MIT
# swap-pages: fills memory, or a block device, and checks each page. swap-low: whether memory is short.
ALL += $(BUILD)/tests/swap-pages $(BUILD)/tests/swap-low

$(BUILD)/tests/swap-pages $(BUILD)/tests/swap-low: $(BUILD)/tests/%: tests/swap/src/%.c $(random_h)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE -Wshadow -Wmissing-prototypes -Wstrict-prototypes -o $@.new $< -pthread && mv $@.new $@
