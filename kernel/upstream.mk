# SPDX-License-Identifier: MIT
#
# rdma_rxe.ko: Debian's own rxe (linux-source-6.12), our patches, our files, built out of tree.
#
#   build/kernel/upstream/    the part of Debian's source that we need, unchanged
#   build/kernel/linux/       the same, patched, with kernel/src and kernel/uapi copied into it
#   build/kernel/rdma_rxe.ko  the module, without debug information
#
# build/kernel-debug/ is the same for the debug kernel (tests/vm/debug-kernel); only `make kernel-debug`
# builds there. Its DEBUG_KERNEL= is what tests/vm/debug-kernel printed.

KERNEL_SOURCE ?= /usr/src/linux-source-6.12.tar.xz
RXE := drivers/infiniband/sw/rxe
kernel_patches := $(addprefix kernel/patches/,$(shell sed 's/[ \t]*\#.*//; /^$$/d' kernel/patches/series 2>/dev/null))
# the structures of rdma_cm's files, which only ucma.c declares: rxe_migr_ucma.c reads them
kernel_ucma := sed -n '/^struct ucma_[a-z]* {/,/^};/p'
kernel_ours := $(wildcard kernel/src/*.[ch] kernel/uapi/rdma/*.h)

ALL += build/kernel/rdma_rxe.ko

build/kernel/upstream/.done: $(KERNEL_SOURCE) build/kernel-version
	$(call say,UNPACK,$(<F))
	$(Q)rm -rf $(@D) && mkdir -p $(@D)
	$(Q)xz -dc -T0 $< | tar -x --strip-components=1 -C $(@D) --wildcards \
		'linux-source-6.12/drivers/infiniband' 'linux-source-6.12/scripts/checkpatch.pl' \
		'linux-source-6.12/scripts/spelling.txt' 'linux-source-6.12/scripts/const_structs.checkpatch'
	$(Q)touch $@

# kbuild NAME,HEADERS,FOLDER,INCLUDED-FOLDERS,ARGUMENTS: the module in build/NAME/FOLDER
define kbuild
$$(MAKE) $(if $(V),V=1,-s) --no-print-directory -C $(2) M=$$(CURDIR)/build/$(1)/$(3) W=1 \
		$(5) CONFIG_DEBUG_INFO_BTF_MODULES= KCFLAGS="$(4:%=-I$$(CURDIR)/%) $$(WERROR) $$(KERNEL_CFLAGS)" modules
endef

rxe_kbuild = $(call kbuild,$(1),$(2),linux/$(RXE),$(addprefix build/$(1)/linux/,drivers/infiniband/core include/uapi),CONFIG_RDMA_RXE=m)

# kernel_build NAME,HEADERS
define kernel_build
build/$(1)/linux/.patched: build/kernel/upstream/.done $(wildcard kernel/patches/series) $(kernel_patches)
	$$(call say,PATCH,$$(@D))
	$(Q)rm -rf $$(@D) && mkdir -p $$(@D)/include/uapi/rdma && cp -a build/kernel/upstream/drivers $$(@D)/
	$(Q)for p in $(kernel_patches); do \
		patch -d $$(@D) -s --fuzz=0 -p1 <$$$$p || { echo "$$$$p does not apply" >&2; exit 1; }; done
	$(Q)$(kernel_ucma) $$(@D)/drivers/infiniband/core/ucma.c >$$(@D)/$(RXE)/rxe_migr_ucma.h
	$(Q)touch $$@

# Only files that changed are copied, so that only these are compiled again.
build/$(1)/rdma_rxe.ko: build/$(1)/linux/.patched $(kernel_ours) kernel/upstream.mk
	$(Q)for f in $(wildcard kernel/src/*.[ch]); do \
		cmp -s $$$$f build/$(1)/linux/$(RXE)/$$$${f##*/} || cp $$$$f build/$(1)/linux/$(RXE)/; done
	$(Q)for f in $(wildcard kernel/uapi/rdma/*.h); do \
		cmp -s $$$$f build/$(1)/linux/include/uapi/rdma/$$$${f##*/} || \
		cp $$$$f build/$(1)/linux/include/uapi/rdma/; done
	$$(call say,KBUILD,$$@)
	$(Q)$(call rxe_kbuild,$(1),$(2))
	$(Q)strip --strip-debug -o $$@ build/$(1)/linux/$(RXE)/rdma_rxe.ko

# C=2: sparse reads all files, and none of them is compiled again.
sparse-$(1)-rxe: build/$(1)/rdma_rxe.ko
	$(Q)$(call rxe_kbuild,$(1),$(2)) C=2
endef

$(eval $(call kernel_build,kernel,$(KERNEL_HEADERS)))
ifneq ($(DEBUG_KERNEL),)
$(eval $(call kernel_build,kernel-debug,$(DEBUG_KERNEL)/linux))
endif

.PHONY: kernel kernel-debug sparse sparse-kernel-rxe
kernel: build/kernel/rdma_rxe.ko
kernel-debug: build/kernel-debug/rdma_rxe.ko
sparse: sparse-kernel-rxe
