# SPDX-License-Identifier: MIT
# swap-pages: fills memory, or a block device, and checks each page.
ALL += $(BUILD)/tests/swap-pages

$(BUILD)/tests/swap-pages: tests/swap/src/swap-pages.c $(random_h)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE -Wshadow -Wmissing-prototypes -Wstrict-prototypes -o $@.new $< -pthread && mv $@.new $@
