# SPDX-License-Identifier: MIT
#
# What is installed with librvm.

rvm_pc := $(BUILD)/lib/pkgconfig/librvm.pc
rvm_man := $(addprefix $(rmem_dir)/man/,rvm_init.3 rvm_begin.3 rvm_alloc.3)
rvm_alias := $(addprefix rvm_init.3=,rvm_close.3 rvm_destroy.3 rvm_base.3 rvm_size.3) \
	$(addprefix rvm_begin.3=,rvm_set_range.3 rvm_commit.3 rvm_abort.3) \
	$(addprefix rvm_alloc.3=,rvm_free.3 rvm_root.3 rvm_set_root.3)

ALL += $(rvm_pc)
INSTALL += install-rvm
.PHONY: install-rvm

$(rvm_pc): $(rmem_dir)/rvm/librvm.pc.in $(BUILD)/config.mk
	$(Q)mkdir -p $(@D)
	$(Q)sed 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@includedir@|$(INCLUDEDIR)|; s|@version@|$(GODWIT_VERSION)|' $< >$@

install-rvm: $(rvm_pc)
	$(Q)install -D -m 644 -t $(DESTDIR)$(LIBDIR)/pkgconfig $(rvm_pc)
	$(Q)install -D -m 644 -t $(DESTDIR)$(MANDIR)/man3 $(rvm_man)
	$(Q)for alias in $(rvm_alias); do \
		ln -sfn $${alias%=*} $(DESTDIR)$(MANDIR)/man3/$${alias#*=} || exit 1; done
