# SPDX-License-Identifier: MIT

ALL += build/tests/criu-loop build/tests/criu-take build/tests/criu-images

build/tests/criu-loop: tests/criu/src/loop.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $< -libverbs

build/tests/criu-take: tests/criu/src/take.c $(verbs_headers) $(verbs_lib)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(VERBS_CFLAGS) -o $@ $< $(VERBS_LIBS)

# The plugin's image code without CRIU.
build/tests/criu-images: tests/criu/src/images.c $(addprefix build/criu-plugin/,error.o image.o records.o rdma.pb-c.o)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(plugin_cflags) -o $@ $^ -lprotobuf-c -lz
