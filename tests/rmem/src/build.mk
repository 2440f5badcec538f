# SPDX-License-Identifier: MIT

# rmem-crash: the donor's store on a disk that loses what was not synced (rmem-lossy).
rmem_crash_src := $(addprefix tests/rmem/src/,rmem-crash.c damage.c model.c scenario.c)
ALL += build/tests/rmem-lossy.so build/tests/rmem-crash

build/tests/rmem-lossy.so: tests/rmem/src/rmem-lossy.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE -fPIC -shared -o $@.new $< && mv $@.new $@

build/tests/rmem-crash: $(rmem_crash_src) $(wildcard tests/rmem/src/*.h) $(rmem_store_obj)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE $(RMEM_CFLAGS) -I$(rmem_dir)/daemon -Ikernel/uapi -o $@.new $(filter %.c %.o,$^) -ljansson -lz && mv $@.new $@

# rmem-bank, rmem-btree, rmem-whole: programs on librvm. rmem-heap: what librvm does without a network.
rmem_rvm_tests := $(addprefix $(BUILD)/tests/,rmem-bank rmem-btree rmem-whole)
rmem_rvm_cflags := $(CFLAGS) -D_GNU_SOURCE $(RMEM_CFLAGS)
ALL += $(rmem_rvm_tests) $(BUILD)/tests/rmem-heap

$(rmem_rvm_tests): $(BUILD)/tests/%: tests/rmem/src/%.c tests/rmem/src/recoverable.c \
		tests/rmem/src/recoverable.h $(librvm)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_rvm_cflags) -o $@ $(filter %.c,$^) $(RVM_LIBS) -Wl,-rpath,'$$ORIGIN/..' -pthread

$(BUILD)/tests/rmem-heap: tests/rmem/src/rmem-heap.c \
		$(patsubst %,$(rmem_build)/rvm/%.o,txn pages fault heap) $(rmem_dir)/rvm/internal.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_rvm_cflags) -I$(rmem_dir) -Ikernel/uapi -o $@ $(filter %.c %.o,$^) -pthread

# rmem-doubt: all of librvm, with calls of librmem that need no network.
ALL += $(BUILD)/tests/rmem-doubt

$(BUILD)/tests/rmem-doubt: tests/rmem/src/rmem-doubt.c tests/rmem/src/fake_rmem.c tests/rmem/src/fake_rmem.h $(librvm_obj)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_rvm_cflags) -I$(rmem_dir) -o $@ $(filter %.c %.o,$^) -pthread

# rmem-load: a client that checks each byte. rmem-says: one that does what a test tells it. rmem-slabs: one whose slabs are
# taken. rmem-stray: what no client may do; it speaks to a donor without librmem.
rmem_client_tests := $(BUILD)/tests/rmem-load $(BUILD)/tests/rmem-says $(BUILD)/tests/rmem-slabs $(BUILD)/tests/rmem-stray
rmem_client_cflags := $(CFLAGS) -D_GNU_SOURCE -Wshadow -Wmissing-prototypes -Wstrict-prototypes
ALL += $(rmem_client_tests)

$(rmem_client_tests): $(random_h)

$(BUILD)/tests/rmem-load: tests/rmem/src/rmem-load.c $(wildcard tests/rmem/src/load*.[ch])
$(BUILD)/tests/rmem-says: tests/rmem/src/rmem-says.c
$(BUILD)/tests/rmem-load $(BUILD)/tests/rmem-says: $(rmem_dir)/lib/rmem.h $(librmem)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_client_cflags) $(RMEM_CFLAGS) -o $@.new $(filter %.c,$^) $(RMEM_LIBS) -Wl,-rpath,'$$ORIGIN/..' -pthread && \
		mv $@.new $@

$(BUILD)/tests/rmem-slabs: tests/rmem/src/rmem-slabs.c $(rmem_dir)/lib/rmem.h $(librmem)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_client_cflags) $(RMEM_CFLAGS) -o $@.new $< $(RMEM_LIBS) -Wl,-rpath,'$$ORIGIN/..' && mv $@.new $@

$(BUILD)/tests/rmem-stray: tests/rmem/src/rmem-stray.c tests/rmem/src/stray_messages.c tests/programs/stray_link.c tests/programs/stray.h kernel/uapi/rmem/wire.h $(rmem_dir)/common/common.h $(rmem_common_obj)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_client_cflags) -I$(rmem_dir) -Ikernel/uapi -o $@.new $(filter %.c %.o,$^) -libverbs -lsodium && mv $@.new $@

# rmem-steps: a client and a donor that are killed at each step between them.
ALL += $(BUILD)/tests/rmem-steps $(BUILD)/tests/rmem-steps-kill.so

$(BUILD)/tests/rmem-steps: tests/rmem/src/rmem-steps.c tests/rmem/src/steps_client.c tests/rmem/src/steps.h $(rmem_dir)/lib/rmem.h $(librmem)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_client_cflags) $(RMEM_CFLAGS) -o $@.new $(filter %.c,$^) $(RMEM_LIBS) -Wl,-rpath,'$$ORIGIN/..' && mv $@.new $@

$(BUILD)/tests/rmem-steps-kill.so: tests/rmem/src/rmem-steps-kill.c tests/rmem/src/steps.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -D_GNU_SOURCE $(RMEM_CFLAGS) -fPIC -shared -o $@.new $< && mv $@.new $@
