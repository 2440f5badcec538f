# SPDX-License-Identifier: MIT

verbs_tests := build/tests/migrate build/tests/migrate-chain build/tests/migrate-windows build/tests/migrate-last-wqe
ALL += $(verbs_tests)

build/tests/migrate: tests/verbs/src/migrate.c tests/verbs/src/failing.c tests/verbs/src/failing.h
build/tests/migrate-chain: tests/verbs/src/migrate-chain.c
build/tests/migrate-last-wqe: tests/verbs/src/migrate-last-wqe.c
build/tests/migrate-windows: tests/verbs/src/migrate-windows.c tests/verbs/src/failing.c tests/verbs/src/failing.h

$(verbs_tests): $(dumps_src) $(verbs_headers) $(verbs_lib)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(VERBS_CFLAGS) -o $@.new $(filter tests/%.c,$^) $(VERBS_LIBS) -libverbs && mv $@.new $@
