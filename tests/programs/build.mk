# SPDX-License-Identifier: MIT
# Programs, and sources of programs, that tests of several folders use.

random_h := tests/programs/random.h
dumps_src := tests/programs/dumps.c tests/programs/dumps.h

ALL += build/tests/traffic build/tests/stopctl build/tests/criu-loop build/tests/criu-take build/tests/criu-images build/tests/tap

build/tests/traffic: $(wildcard tests/programs/traffic*.[ch])
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $(filter %.c,$^) -libverbs -pthread && mv $@.new $@

build/tests/stopctl: tests/programs/stopctl.c $(verbs_headers) $(verbs_lib)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(VERBS_CFLAGS) -o $@.new $< $(VERBS_LIBS) -libverbs -pthread && mv $@.new $@

build/tests/criu-loop: tests/programs/criu-loop.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $< -libverbs

build/tests/criu-take: tests/programs/criu-take.c $(verbs_headers) $(verbs_lib)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(VERBS_CFLAGS) -o $@ $< $(VERBS_LIBS)

# The plugin's image code without CRIU. The sanitizers end the program when it touches memory that is not its own.
build/tests/criu-images: tests/programs/criu-images.c $(addprefix criu-plugin/,error.c image.c records.c share.c) build/criu-plugin/rdma.pb-c.o
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(plugin_cflags) -fsanitize=address,undefined -fno-sanitize-recover=undefined -o $@ $^ -lprotobuf-c -lz

cm_programs := build/tests/cm-talk build/tests/cm-hold
ALL += $(cm_programs)

$(cm_programs): build/tests/%: tests/programs/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@ $< -lrdmacm -libverbs -pthread

build/tests/tap: tests/programs/tap.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $< && mv $@.new $@
