# SPDX-License-Identifier: MIT

ALL += build/tests/migrate

build/tests/migrate: tests/verbs/src/migrate.c $(verbs_headers) $(verbs_lib)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(VERBS_CFLAGS) -o $@.new $< $(VERBS_LIBS) -libverbs && mv $@.new $@
