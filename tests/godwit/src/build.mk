# SPDX-License-Identifier: MIT

godwit_tests := build/tests/tcp_count build/tests/tap
ALL += $(godwit_tests)

$(godwit_tests): build/tests/%: tests/godwit/src/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $< && mv $@.new $@
