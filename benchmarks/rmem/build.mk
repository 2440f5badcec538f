# SPDX-License-Identifier: MIT

ALL += $(BUILD)/bench/rmem-bench

$(BUILD)/bench/rmem-bench: benchmarks/rmem/rmem-bench.c benchmarks/rmem/bench_data.c benchmarks/rmem/bench_base.c \
		benchmarks/rmem/bench.h tests/programs/stray_link.c tests/programs/stray.h $(rmem_dir)/lib/rmem.h \
		$(rmem_common_obj) $(librmem)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_client_cflags) $(RMEM_CFLAGS) -I$(rmem_dir) -Ikernel/uapi -o $@.new $(filter %.c %.o,$^) $(RMEM_LIBS) \
		-libverbs -lsodium -Wl,-rpath,'$$ORIGIN/..' -pthread && mv $@.new $@
