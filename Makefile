# SPDX-License-Identifier: MIT
#
#   make            the module, the verbs extension, the plugin, the tools: all under build/
#   make check      the gate: each behaviour in its shortest form, in guests; TESTS=criu, TESTS=driver/020 or TESTS=replay for
#                   some, REPEAT=20 to repeat one that fails seldom, LIST=word to list tests; docs/TESTING.md
#   make check-all  all tests in their full form, hours; goes on where it was stopped (AGAIN=1 does not). SHARD=2/4 takes a
#                   quarter, REPORT=1 prints what this commit's tests said; SEED=N for the same combinations again in
#                   tests/matrix and tests/criu/010-rdma-core-traffic
#   make check-mutants
#                   make check is red on each of some copies of the tree that are broken on purpose
#   make check-suite
#                   all of rdma-core's own traffic tests with moves inside of them (tests/criu/010-rdma-core-traffic, which takes some); SEED=N
#   make check-power
#                   each host loses its power at each step of a move (tests/godwit/035-power-loss, which takes some). An hour.
#   make check-debug
#                   some tests in a kernel with KASAN, lockdep and kmemleak, which is built first (10 minutes)
#   make fuzz       packets that are almost right, changed dumps and changed images, in that kernel; N= packets
#                   (1000000), IMAGES= and DUMPS= (100000), SEED= of the first round. Hours; goes on where it was stopped
#   make soak       N= moves (1000) of the integrity program, with loss and tools that are killed; goes on where it was
#                   stopped; DEBUG=1 runs it in the debug kernel
#   make demo       a running perftest moves between two guests
#   make demo-rmem  memory that one guest lends to another moves to a third
#   make demo-swap  a guest swaps to memory of another, which moves to a third, and then dies
#   make bench-overhead
#                   what the driver costs when nothing moves; writes docs/benchmarks/overhead.md
#   make bench-blackout
#                   a move with RDMA against CRIU's dump and restore without; docs/benchmarks/blackout.md
#   make bench-check
#                   godwit check beside running traffic; docs/benchmarks/check.md
#   make bench-many
#                   many busy queue pairs and the rest of the host; writes docs/benchmarks/many.md, which is not there yet
#   make bench-rmem
#                   remote memory against verbs alone, and against redis; docs/benchmarks/rmem.md
#   make bench-swap
#                   swap to remote memory against nbd, nvme-rdma and a slow disk; docs/benchmarks/swap.md
#   make install    DESTDIR=, prefix from ./configure
#   make uninstall  removes what make install has installed there; DESTDIR=
#   make style      what CI asks of the sources
#   make refresh    kernel/patches anew from the edited build/kernel/linux; PATCH= takes the edits
#   make clean
#
# V=1 shows the commands. On Debian 13 this builds with what is installed; on any other Debian, and for
# check, demo* and bench-* everywhere, it builds in a Debian 13 tree of its own (tests/vm/tree).
#
# A part of the project is a file build.mk in its folder: it adds what it builds to ALL and installs in
# a target that it adds to INSTALL.

MAKEFLAGS += --no-builtin-rules --no-print-directory
GODWIT_VERSION ?= 0.1
CC := gcc
# The tree's compiler is always the same one, so its warnings may be errors.
WERROR ?= $(if $(GODWIT_IN_TREE),-Werror)
CFLAGS ?= -O2 -g
CFLAGS += -std=gnu11 -Wall -Wextra $(WERROR)
Q := $(if $(V),,@)
say = $(if $(V),@:,@printf '  %-7s %s\n' '$(1)' '$(2)')

.DEFAULT_GOAL := all
.PHONY: all check check-all check-mutants check-debug check-power check-suite fuzz soak demo demo-rmem demo-swap bench-overhead bench-blackout bench-check bench-many bench-rmem bench-swap install uninstall style refresh clean vm kernel kernel-debug

# These goals run guests, so they run on the host itself, after a build in the tree.
ifneq ($(GODWIT_IN_TREE),1)
host_goals := check check-all check-mutants check-debug check-power check-suite fuzz soak demo demo-rmem demo-swap bench-overhead bench-blackout bench-check bench-many bench-rmem bench-swap clean uninstall
check check-all: tree-all
	$(Q)tests/check $(if $(filter %-all,$@),--all) $(TESTS)

check-mutants: tree-all
	$(Q)tests/mutants/run $(TESTS)

# Left out: driver/018, since packets end so slowly in this kernel that all of its 2 GiB are on their way at once.
check-debug: tree-all
	$(Q)LAB_OPTIONS=--debug-kernel tests/check --all $(or $(TESTS),$(filter-out driver/018%,$(patsubst tests/%,%,\
		$(sort $(wildcard tests/vm/004* tests/driver/[0-9]* tests/criu/[0-9]* tests/verbs/00[1-5]* tests/matrix/[0-9]* tests/cm/[0-9]* \
			tests/mpi/[0-9]* tests/tools/[0-9]* tests/swap/00* tests/swap/01[02-5]*)))))

check-power: tree-all
	$(Q)POWER=all $(wildcard tests/godwit/035*)

check-suite: tree-all
	$(Q)MOVED_SUITE=all tests/check --all criu/010

fuzz: tree-all
	$(Q)tests/fuzz $(or $(N),1000000) $(SEED)

soak: tree-all
	$(Q)DEBUG=$(DEBUG) tests/soak/run $(N)

demo demo-rmem demo-swap: tree-all
	$(Q)tests/$@

bench-overhead bench-blackout bench-check bench-many bench-rmem bench-swap: tree-all
	$(Q)benchmarks/$(@:bench-%=%)/run

# (as root it installs what is missing; anybody else is told what to install)
.PHONY: tree-all
tree-all:
	$(Q)./configure --host-only $(if $(filter 0,$(shell id -u)),--install-deps)
	$(Q)tests/vm/in-tree $(MAKE) all
endif

clean:
	$(Q)rm -rf build

# Which release is installed. The tree has no git, so it is told. (A tar of the sources has no commits.)
ifneq ($(filter install,$(MAKECMDGOALS)),)
ifndef GODWIT_RELEASE
export GODWIT_RELEASE := $(strip $(GODWIT_VERSION) $(shell [ ! -e .git ] || git describe --always --dirty 2>/dev/null))
endif
endif

# This needs no build, and the checkout may be of another release. Modules may be there for several kernels.
installed := usr/share/godwit/installed
uninstall:
	$(Q)[ -e "$(DESTDIR)/$(installed)" ] || \
		{ echo "uninstall: $(DESTDIR)/$(installed) is not there: nothing is installed" >&2; exit 1; }
	$(call say,REMOVE,$(or $(DESTDIR),/))
	$(Q)cd "$(DESTDIR)/" && xargs -d '\n' rm -f -- <$(installed)
	$(if $(DESTDIR),,$(Q)for release in $$(sed -n 's|.*/lib/modules/\([^/]*\)/updates/.*|\1|p' /$(installed) | sort -u); do \
		[ ! -d "/lib/modules/$$release" ] || depmod "$$release"; done)
	$(if $(DESTDIR),,$(Q)ldconfig)
	$(Q)rm -r "$(DESTDIR)/$(dir $(installed))"
	@echo "Kept: /etc/godwit with the cluster's key, /var/lib/godwit, the settings and data of rmemd and rmemswap, and what" \
		"systemctl enable has made: systemctl disable rmemd rmemswap"

flavour := $(if $(GODWIT_IN_TREE),tree,$(shell . /etc/os-release && echo "$$ID$$VERSION_ID"))
goals := $(filter-out $(host_goals),$(or $(MAKECMDGOALS),all))

ifeq ($(filter tree debian13,$(flavour)),)
# Not a Debian that we build on: do it in the tree.
ifneq ($(goals),)
ifneq ($(filter install,$(goals)),)
$(if $(DESTDIR),,$(error install: what is built here is for Debian 13: say where it is, DESTDIR=))
endif
.PHONY: $(goals)
$(firstword $(goals)):
	$(Q)./configure --host-only
	$(Q)tests/vm/in-tree $(MAKE) $(goals)
$(wordlist 2,999,$(goals)): $(firstword $(goals)) ; @:
endif
else ifneq ($(goals),)

# What was built in the tree and what was built outside do not mix.
ifneq ($(shell cat build/flavour 2>/dev/null),$(flavour))
$(shell rm -f build/config.mk)
endif
# When another kernel runs than at configure's time, the modules are for that one. (The tree has one kernel.)
ifneq ($(flavour),tree)
ifneq ($(shell sed -n 's/^KERNEL_RUNNING := //p' build/config.mk 2>/dev/null),$(shell uname -r))
$(shell rm -f build/config.mk)
endif
endif
build/config.mk: configure
	$(Q)./configure --flavour $(flavour)
include build/config.mk

include kernel/upstream.mk kernel/rmem_swap/build.mk tests/vm/vm.mk
include $(wildcard rdma-core-patches/build.mk tools/common/build.mk criu-plugin/build.mk)
include $(filter-out tools/common/build.mk,$(wildcard tools/build.mk tools/*/build.mk))
# Tests and benchmarks run what the tree has built.
ifeq ($(flavour),tree)
include tests/build.mk $(wildcard benchmarks/*/build.mk)
endif

all: $(ALL)

# What is installed is listed first, beside what was installed before, so that uninstall finds all of it.
install: all
	$(Q)rm -rf build/staged
	$(Q)$(MAKE) install-files DESTDIR=$(CURDIR)/build/staged >/dev/null
	$(Q)mkdir -p "$(DESTDIR)/$(dir $(installed))"
	$(Q){ cat "$(DESTDIR)/$(installed)" 2>/dev/null; cd build/staged && find . ! -type d; } | sort -u >build/installed
	$(Q)install -m 644 build/installed "$(DESTDIR)/$(installed)"
	$(Q)echo "$(GODWIT_RELEASE)" >"$(DESTDIR)/$(dir $(installed))release"
	$(Q)$(MAKE) install-files
	$(if $(DESTDIR),,$(Q)depmod $(KERNEL_RELEASE))
	$(if $(DESTDIR),,$(Q)ldconfig)

.PHONY: install-files
install-files: $(INSTALL)
	$(call say,INSTALL,$(DESTDIR)$(MODDIR)/updates/rdma_rxe.ko)
	$(Q)install -D -m 644 build/kernel/rdma_rxe.ko "$(DESTDIR)$(MODDIR)/updates/rdma_rxe.ko"
	$(call say,INSTALL,$(DESTDIR)$(MODDIR)/updates/rmem_swap.ko)
	$(Q)install -D -m 644 build/kernel/rmem_swap.ko "$(DESTDIR)$(MODDIR)/updates/rmem_swap.ko"

style: all build/kernel/upstream/.done
	$(Q)tests/style

refresh: build/kernel/upstream/.done
	$(Q)kernel/refresh $(PATCH)

endif
