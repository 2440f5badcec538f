# SPDX-License-Identifier: MIT
#
# The verbs extension out of tree: libibverbs-migrate.so beside the stock libibverbs.
#
#   build/include/   its headers, as they are installed; for what builds against it here
#   build/lib/       the library; link with -Lbuild/lib -libverbs-migrate
#
# VERBS_CFLAGS and VERBS_LIBS are what the plugin and the tools need.

verbs_dir := rdma-core-patches
verbs_src := $(addprefix $(verbs_dir)/libibverbs/migrate,.c _cmd.c _qp.c _record.c _restore.c)
verbs_obj := $(verbs_src:$(verbs_dir)/libibverbs/%.c=build/verbs/%.o)
verbs_map := $(verbs_dir)/libibverbs-migrate.map
verbs_headers := build/include/infiniband/migrate.h build/include/infiniband/migrate_fields.h build/include/rdma/rxe_migrate.h
verbs_man := $(wildcard $(verbs_dir)/man/*.[1-9])
# pages that describe more than one call: PAGE=ALIAS
verbs_alias := $(addprefix ibv_dump_context.3=,ibv_abort_context.3 ibv_abort_older_dump.3 ibv_inspect_context.3 ibv_next_record.3) \
	$(addprefix ibv_attach_context.3=,ibv_begin_restore_context.3 ibv_detach_context.3 ibv_open_restore_context.3) \
	$(addprefix ibv_query_migration.3=,ibv_ask_peers.3 ibv_ask_peers_anew.3 ibv_migration_key.3 ibv_query_device_calls.3 ibv_query_device_gids.3 ibv_query_device_migration.3 ibv_query_event_fd.3 ibv_query_taken.3 ibv_renew_stop.3) \
	$(addprefix ibv_record_kind.3=,ibv_for_each_record.3 ibv_record_name.3 ibv_record_number.3 ibv_record_owner.3 ibv_record_refusal.3 ibv_record_rings.3 ibv_uverbs_object_str.3) \
	$(addprefix ibv_query_cm_ids.3=,ibv_adopt_cm_file.3 ibv_cm_device.3 ibv_cm_id_refusal.3 ibv_expect_cm_connect.3 ibv_query_cm_events.3 ibv_refill_cm_id.3 ibv_report_cm_event.3)
verbs_lib := build/lib/libibverbs-migrate.so

VERBS_CFLAGS := -Ibuild/include
VERBS_LIBS := -Lbuild/lib -libverbs-migrate

ALL += $(verbs_lib) build/lib/pkgconfig/libibverbs-migrate.pc
INSTALL += install-verbs
.PHONY: install-verbs

build/include/infiniband/%.h: $(verbs_dir)/libibverbs/%.h
	$(Q)install -D -m 644 $< $@

build/include/rdma/%.h: kernel/uapi/rdma/%.h
	$(Q)install -D -m 644 $< $@

build/verbs/%.o: $(verbs_dir)/libibverbs/%.c $(verbs_dir)/libibverbs/migrate_cmd.h $(verbs_headers)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -fPIC $(VERBS_CFLAGS) -c -o $@ $<

$(verbs_lib).1: $(verbs_obj) $(verbs_map)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,--version-script=$(verbs_map) \
		-Wl,--no-undefined -o $@ $(verbs_obj)

$(verbs_lib): $(verbs_lib).1
	$(Q)ln -sfn $(<F) $@

build/lib/pkgconfig/libibverbs-migrate.pc: $(verbs_dir)/libibverbs-migrate.pc.in build/config.mk
	$(Q)mkdir -p $(@D)
	$(Q)sed 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@includedir@|$(INCLUDEDIR)|' $< >$@

install-verbs: $(verbs_lib) build/lib/pkgconfig/libibverbs-migrate.pc
	$(call say,INSTALL,$(DESTDIR)$(LIBDIR)/libibverbs-migrate.so)
	$(Q)install -D -m 644 -t "$(DESTDIR)$(LIBDIR)" $(verbs_lib).1
	$(Q)ln -sfn libibverbs-migrate.so.1 "$(DESTDIR)$(LIBDIR)/libibverbs-migrate.so"
	$(Q)install -D -m 644 -t "$(DESTDIR)$(LIBDIR)/pkgconfig" build/lib/pkgconfig/libibverbs-migrate.pc
	$(Q)install -D -m 644 -t "$(DESTDIR)$(INCLUDEDIR)/infiniband" $(filter %/migrate.h %/migrate_fields.h,$(verbs_headers))
	$(Q)install -D -m 644 -t "$(DESTDIR)$(INCLUDEDIR)/rdma" build/include/rdma/rxe_migrate.h
	$(Q)for page in $(verbs_man); do \
		install -D -m 644 -t "$(DESTDIR)$(MANDIR)/man$${page##*.}" $$page || exit 1; done
	$(Q)for alias in $(verbs_alias); do \
		ln -sfn $${alias%=*} "$(DESTDIR)$(MANDIR)/man3/$${alias#*=}" || exit 1; done
