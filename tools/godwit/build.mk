# SPDX-License-Identifier: MIT
#
# The command godwit: build/godwit. Generated files lie beside the objects.

BUILD ?= build
godwit_dir := tools/godwit
godwit_build := $(BUILD)/tools/godwit
godwit_obj := $(patsubst $(godwit_dir)/%.c,$(godwit_build)/%.o,$(wildcard $(godwit_dir)/*.c $(godwit_dir)/move/*.c))
godwit_pb := $(godwit_build)/rpc.pb-c.o $(godwit_build)/rdma.pb-c.o
godwit_cflags := -std=gnu11 -Wall -Wextra $(WERROR) -Wshadow -Wmissing-prototypes -Wstrict-prototypes \
	-D_GNU_SOURCE -DGODWIT_VERSION='"$(GODWIT_VERSION)"' -I$(godwit_dir) -I$(godwit_build) $(COMMON_CFLAGS) $(VERBS_CFLAGS)

ALL += $(BUILD)/godwit
INSTALL += install-godwit
.PHONY: install-godwit

# CRIU's RPC, as its -dev package declares it; the plugin's images.
$(godwit_build)/rpc.proto: /usr/include/criu/rpc.proto
	$(Q)mkdir -p $(@D) && cp $< $@

$(godwit_build)/rdma.proto: criu-plugin/images/rdma.proto
	$(Q)mkdir -p $(@D) && cp $< $@

$(godwit_build)/%.pb-c.c: $(godwit_build)/%.proto
	$(call say,PROTOC,$@)
	$(Q)protoc --proto_path=$(@D) --c_out=$(@D) $<

.SECONDARY: $(godwit_pb:.o=.c)

$(godwit_build)/%.pb-c.o: $(godwit_build)/%.pb-c.c
	$(call say,CC,$@)
	$(Q)$(CC) -O2 -g -c -o $@ $<

$(godwit_obj): $(godwit_build)/%.o: $(godwit_dir)/%.c $(godwit_pb:.o=.c) $(verbs_headers)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -O2 -g $(godwit_cflags) -MMD -MP -c -o $@ $<

$(BUILD)/godwit: $(godwit_obj) $(godwit_pb) $(common_lib) $(verbs_lib)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(godwit_obj) $(godwit_pb) $(common_lib) $(VERBS_LIBS) -lrdmacm -libverbs -ljansson -lprotobuf-c -lcrypto -lz

-include $(godwit_obj:.o=.d)

install-godwit: $(BUILD)/godwit
	$(call say,INSTALL,$(DESTDIR)$(BINDIR)/godwit)
	$(Q)install -D -m 755 $(BUILD)/godwit "$(DESTDIR)$(BINDIR)/godwit"
	$(Q)install -D -m 644 $(godwit_dir)/godwit.1 "$(DESTDIR)$(MANDIR)/man1/godwit.1"
	$(Q)mkdir -p "$(DESTDIR)$(PREFIX)/lib/systemd/system"
	$(Q)sed 's,@BINDIR@,$(BINDIR),' $(godwit_dir)/godwit-key.service >"$(DESTDIR)$(PREFIX)/lib/systemd/system/godwit-key.service"
	$(Q)install -D -m 644 -t "$(DESTDIR)$(PREFIX)/lib/udev/rules.d" $(godwit_dir)/90-godwit-key.rules
