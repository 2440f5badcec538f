# SPDX-License-Identifier: MIT

ALL += build/tests/alltoall

build/tests/alltoall: tests/mpi/src/alltoall.c
	$(call say,MPICC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)mpicc $(CFLAGS) -o $@.new $< && mv $@.new $@
