# SPDX-License-Identifier: MIT
#
# Remote memory: build/rmemd, build/rmemctl, build/rmemswap, build/librmem.so.1, build/librvm.so.1; build/rmem-hello and other examples.

rmem_dir := tools/rmem
rmem_build := $(BUILD)/tools/rmem
rmem_cflags := -std=gnu11 -O2 -g -Wall -Wextra $(WERROR) -Wshadow -Wmissing-prototypes -Wstrict-prototypes -D_GNU_SOURCE \
	-DRMEM_PROGRAM_VERSION='"$(GODWIT_VERSION)"' -I$(rmem_dir)/lib -Ikernel/uapi $(COMMON_CFLAGS)
rmem_objects = $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(rmem_dir)/$(1)/*.c))

rmemd_obj := $(call rmem_objects,daemon)
rmemctl_obj := $(call rmem_objects,ctl)
rmemswap_obj := $(call rmem_objects,swap)
librmem_obj := $(call rmem_objects,lib)
librvm_obj := $(call rmem_objects,rvm)
# What rmemd and rmemswap share.
rmem_service_obj := $(call rmem_objects,service)
# What both ends of a handshake do.
rmem_common_obj := $(call rmem_objects,common)
# The store alone, which tests of it link against.
rmem_store_obj := $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(addprefix $(rmem_dir)/daemon/,store*.c files*.c log.c host.c)))

librmem := $(BUILD)/librmem.so.1
librvm := $(BUILD)/librvm.so.1
RMEM_CFLAGS := -I$(rmem_dir)/lib -I$(rmem_dir)/rvm
RMEM_LIBS := -L$(BUILD) -l:librmem.so.1 -Wl,-rpath,'$$ORIGIN'
RVM_LIBS := -L$(BUILD) -l:librvm.so.1 $(RMEM_LIBS)

rmem_pc := $(addprefix $(BUILD)/lib/pkgconfig/,librmem.pc librvm.pc)
rmem_examples := $(patsubst $(rmem_dir)/examples/%.c,$(BUILD)/rmem-%,$(wildcard $(rmem_dir)/examples/*.c))
rmem_man := $(wildcard $(rmem_dir)/man/*.[1-9])
# pages that tell of more than one call: PAGE=ALIAS
rmem_alias := $(addprefix rmem_connect.3=,rmem_connect_async.3 rmem_reconnect.3 rmem_reconnect_async.3 rmem_connection.3 rmem_close.3 rmem_error.3) \
	$(addprefix rmem_alloc.3=,rmem_alloc_async.3 rmem_find.3 rmem_each.3) \
	$(addprefix rmem_put.3=,rmem_get.3 rmem_put8.3 rmem_put_async.3 rmem_get_async.3 rmem_put8_async.3 rmem_wait.3 rmem_test.3 \
		rmem_flush.3 rmem_flush_async.3 \
		rmem_register.3 rmem_unregister.3) \
	$(addprefix rmem_cp.3=,rmem_free.3 rmem_txn_go.3 rmem_txn_go_async.3 rmem_txn_go_on.3 rmem_txn_abort.3 rmem_last_txn.3) \
	$(addprefix rmem_on_evict.3=,rmem_fd.3 rmem_poll.3) \
	$(addprefix rvm_init.3=,rvm_close.3 rvm_destroy.3 rvm_base.3 rvm_size.3) \
	$(addprefix rvm_begin.3=,rvm_set_range.3 rvm_commit.3 rvm_abort.3) \
	$(addprefix rvm_alloc.3=,rvm_free.3 rvm_root.3 rvm_set_root.3)

ALL += $(BUILD)/rmemd $(BUILD)/rmemctl $(BUILD)/rmemswap $(librmem) $(librvm) $(rmem_pc) $(rmem_examples)
INSTALL += install-rmem
.PHONY: install-rmem

$(rmemd_obj) $(rmemctl_obj) $(rmemswap_obj) $(librmem_obj) $(librvm_obj) $(rmem_common_obj) $(rmem_service_obj): $(BUILD)/%.o: %.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(rmem_cflags) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(BUILD)/rmemd: $(rmemd_obj) $(rmem_service_obj) $(rmem_common_obj) $(common_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -levent_core -libverbs -lsodium -linih -ljansson -lsystemd -lz -lm

$(BUILD)/rmemctl: $(rmemctl_obj) $(common_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -ljansson

$(rmemswap_obj): rmem_cflags += -I/usr/include/libnl3

$(BUILD)/rmemswap: $(rmemswap_obj) $(rmem_service_obj) $(rmem_common_obj) $(common_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -levent_core -libverbs -lsodium -linih -ljansson -lsystemd -lnl-genl-3 -lnl-3 -lpthread

$(librmem): $(librmem_obj) $(rmem_common_obj) $(rmem_dir)/lib/librmem.map
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=$(rmem_dir)/lib/librmem.map -o $@ \
		$(filter %.o,$^) -libverbs -lsodium -lpthread

$(librvm): $(librvm_obj) $(rmem_dir)/rvm/librvm.map $(librmem)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=$(rmem_dir)/rvm/librvm.map -o $@ \
		$(filter %.o,$^) $(RMEM_LIBS) -lpthread

$(rmem_examples): $(BUILD)/rmem-%: $(rmem_dir)/examples/%.c $(rmem_dir)/lib/rmem.h $(librmem)
	$(call say,CC,$@)
	$(Q)$(CC) -std=c11 -O2 -g -Wall -Wextra $(WERROR) $(RMEM_CFLAGS) $(LDFLAGS) -o $@ $< $(RMEM_LIBS)

$(BUILD)/lib/pkgconfig/librmem.pc: $(rmem_dir)/lib/librmem.pc.in
$(BUILD)/lib/pkgconfig/librvm.pc: $(rmem_dir)/rvm/librvm.pc.in
$(rmem_pc): $(BUILD)/config.mk
	$(Q)mkdir -p $(@D)
	$(Q)sed 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@includedir@|$(INCLUDEDIR)|; s|@version@|$(GODWIT_VERSION)|' $(filter %.in,$^) >$@

-include $(patsubst %.o,%.d,$(rmemd_obj) $(rmemctl_obj) $(rmemswap_obj) $(librmem_obj) $(librvm_obj) $(rmem_common_obj) $(rmem_service_obj))

install-rmem: $(BUILD)/rmemd $(BUILD)/rmemctl $(BUILD)/rmemswap $(librmem) $(librvm) $(rmem_pc)
	$(call say,INSTALL,$(DESTDIR)$(BINDIR)/rmemd)
	$(Q)install -D -m 755 -t "$(DESTDIR)$(BINDIR)" $(BUILD)/rmemctl
	$(Q)install -D -m 755 -t "$(DESTDIR)$(PREFIX)/sbin" $(BUILD)/rmemd $(BUILD)/rmemswap
	$(Q)mkdir -p "$(DESTDIR)$(PREFIX)/lib/systemd/system"
	$(Q)for unit in daemon/rmemd swap/rmemswap; do \
		sed 's,@SBINDIR@,$(PREFIX)/sbin,' $(rmem_dir)/$$unit.service \
			>"$(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}.service" || exit 1; done
	$(Q)install -D -m 755 -t "$(DESTDIR)$(LIBDIR)" $(librmem) $(librvm)
	$(Q)ln -sf librmem.so.1 "$(DESTDIR)$(LIBDIR)/librmem.so" && ln -sf librvm.so.1 "$(DESTDIR)$(LIBDIR)/librvm.so"
	$(Q)install -D -m 644 -t "$(DESTDIR)$(INCLUDEDIR)" $(rmem_dir)/lib/rmem.h $(rmem_dir)/rvm/rvm.h
	$(Q)install -D -m 644 -t "$(DESTDIR)$(LIBDIR)/pkgconfig" $(rmem_pc)
	$(Q)for page in $(rmem_man); do \
		install -D -m 644 -t "$(DESTDIR)$(MANDIR)/man$${page##*.}" $$page || exit 1; done
	$(Q)for alias in $(rmem_alias); do \
		ln -sfn $${alias%=*} "$(DESTDIR)$(MANDIR)/man3/$${alias#*=}" || exit 1; done
