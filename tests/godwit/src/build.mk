# SPDX-License-Identifier: MIT

godwit_tests := build/tests/tcp_count build/tests/beside
ALL += $(godwit_tests)

$(godwit_tests): build/tests/%: tests/godwit/src/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $< && mv $@.new $@

ALL += build/tests/objects
build/tests/objects: tests/godwit/src/objects.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $< -libverbs && mv $@.new $@
