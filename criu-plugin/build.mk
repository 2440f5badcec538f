# SPDX-License-Identifier: MIT
#
# The plugin for stock CRIU: build/criu-plugin/rdma_plugin.so. When CRIU loads the plugin, the loader links it with
# CRIU's functions. The plugin hides its own names, since CRIU has more than 2000, and some may be the same. With -z now a call
# that an older library lacks is found missing at once, not in the watchdog, when a context is stopped.

BUILD ?= build
plugin_dir := criu-plugin
plugin_build := $(BUILD)/criu-plugin
plugin_so := $(plugin_build)/rdma_plugin.so
plugin_headers := $(wildcard $(plugin_dir)/*.h)
plugin_src := $(wildcard $(plugin_dir)/*.c)
plugin_obj := $(plugin_src:$(plugin_dir)/%.c=$(plugin_build)/%.o) $(plugin_build)/rdma.pb-c.o
plugin_cflags := -I$(plugin_build) -I$(plugin_dir) -fPIC -fvisibility=hidden -D_GNU_SOURCE $(COMMON_CFLAGS) $(VERBS_CFLAGS)

ALL += $(plugin_so)
INSTALL += install-plugin install-plugin-man
.PHONY: install-plugin install-plugin-man

$(plugin_build)/rdma.pb-c.c $(plugin_build)/rdma.pb-c.h &: $(plugin_dir)/images/rdma.proto
	$(call say,PROTOC,$<)
	$(Q)mkdir -p $(plugin_build)
	$(Q)protoc --proto_path=$(plugin_dir)/images --c_out=$(plugin_build) $<

$(plugin_build)/rdma.pb-c.o: $(plugin_build)/rdma.pb-c.c
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS) $(plugin_cflags) -c -o $@ $<

$(plugin_build)/%.o: $(plugin_dir)/%.c $(plugin_headers) $(plugin_build)/rdma.pb-c.h $(common_headers) $(verbs_headers)
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS) $(plugin_cflags) -c -o $@ $<

$(plugin_so): $(plugin_obj) $(common_lib) $(verbs_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-z,nodelete,-z,now -o $@ $(plugin_obj) $(common_lib) $(VERBS_LIBS) -lprotobuf-c -lz

install-plugin: $(plugin_so)
	$(call say,INSTALL,$(DESTDIR)$(CRIUDIR)/rdma_plugin.so)
	$(Q)install -D -m 755 $(plugin_so) "$(DESTDIR)$(CRIUDIR)/rdma_plugin.so"

install-plugin-man:
	$(call say,INSTALL,$(DESTDIR)$(MANDIR)/man5/godwit-criu.conf.5)
	$(Q)install -D -m 644 -t "$(DESTDIR)$(MANDIR)/man5" $(plugin_dir)/godwit-criu.conf.5
