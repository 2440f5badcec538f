# SPDX-License-Identifier: MIT
# Builds the lab's programs, static so that they run on any host, and the guests' initramfs.

VM_PROGS := build/vm/agent build/vm/labd build/vm/labexec build/vm/tsc-khz

.PHONY: vm
vm: $(VM_PROGS) build/vm/initrd build/vm/vmlinux

build/vm/%: tests/vm/src/%.c tests/vm/src/frame.h
	$(call say,CC,$@)
	$(Q)mkdir -p build/vm
	$(Q)$(CC) -std=gnu11 -O2 -Wall -Wextra $(WERROR) -static -o $@.new $< && mv $@.new $@

build/vm/initrd: tests/vm/initramfs tests/vm/packages tests/vm/guest/init
	$(call say,GEN,$@)
	$(Q)mkdir -p build/vm
	$(Q)tests/vm/initramfs $@

build/vm/vmlinux: tests/vm/vmlinux tests/vm/packages
	$(call say,GEN,$@)
	$(Q)mkdir -p build/vm
	$(Q)tests/vm/vmlinux $@

# For the debug kernel; tests/vm/debug-kernel prints DEBUG_KERNEL.
build/vm/initrd-debug: tests/vm/initramfs tests/vm/guest/init $(DEBUG_KERNEL)
	$(call say,GEN,$@)
	$(Q)tests/vm/initramfs $@ $(DEBUG_KERNEL)/lib/modules/*
