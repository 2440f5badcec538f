# SPDX-License-Identifier: MIT

ALL += build/tests/criu-images build/tests/criu-count.so

# The plugin's image code without CRIU. The sanitizers end the program when it touches memory that is not its own.
build/tests/criu-images: tests/criu/src/criu-images.c $(addprefix criu-plugin/,error.c image.c records.c share.c) build/criu-plugin/rdma.pb-c.o
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(plugin_cflags) -fsanitize=address,undefined -fno-sanitize-recover=undefined -o $@ $^ -lprotobuf-c -lz

build/tests/criu-count.so: tests/criu/src/criu-count.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -fPIC -shared -o $@ $<
