# SPDX-License-Identifier: MIT

ALL += build/tests/matrix

build/tests/matrix: $(wildcard tests/matrix/src/*.[ch]) $(random_h)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $(filter %.c,$^) -libverbs -pthread && mv $@.new $@
