# SPDX-License-Identifier: MIT
#
# rmem_swap.ko, a module of its own: it does not need our rdma_rxe.ko, and is built in build/kernel*/rmem_swap/
# against the kernel's headers.

rmem_swap_files := $(wildcard kernel/rmem_swap/*.[ch] kernel/rmem_swap/Kbuild)

ALL += build/kernel/rmem_swap.ko

rmem_swap_kbuild = $(call kbuild,$(1),$(2),rmem_swap,kernel/uapi)

# rmem_swap_build NAME,HEADERS
define rmem_swap_build
build/$(1)/rmem_swap.ko: $(rmem_swap_files) $(wildcard kernel/uapi/rmem/*.h) kernel/rmem_swap/build.mk build/kernel-version
	$(Q)[ $$@ -nt build/kernel-version ] || rm -rf build/$(1)/rmem_swap
	$(Q)mkdir -p build/$(1)/rmem_swap
	$(Q)for f in $(rmem_swap_files); do \
		cmp -s $$$$f build/$(1)/rmem_swap/$$$${f##*/} || cp $$$$f build/$(1)/rmem_swap/; done
	$$(call say,KBUILD,$$@)
	$(Q)$(call rmem_swap_kbuild,$(1),$(2))
	$(Q)strip --strip-debug -o $$@ build/$(1)/rmem_swap/rmem_swap.ko

sparse-$(1)-rmem_swap: build/$(1)/rmem_swap.ko
	$(Q)$(call rmem_swap_kbuild,$(1),$(2)) C=2
endef

$(eval $(call rmem_swap_build,kernel,$(KERNEL_HEADERS)))
ifneq ($(DEBUG_KERNEL),)
$(eval $(call rmem_swap_build,kernel-debug,$(DEBUG_KERNEL)/linux))
endif

.PHONY: sparse-kernel-rmem_swap
kernel: build/kernel/rmem_swap.ko
kernel-debug: build/kernel-debug/rmem_swap.ko
sparse: sparse-kernel-rmem_swap
