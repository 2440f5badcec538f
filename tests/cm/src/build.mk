# SPDX-License-Identifier: MIT

cm_tests := build/tests/cm-idle build/tests/cm-talk build/tests/cm-hold
ALL += $(cm_tests)

$(cm_tests): build/tests/%: tests/cm/src/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@ $< -lrdmacm -libverbs -pthread
