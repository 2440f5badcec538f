# SPDX-License-Identifier: MIT
# Programs that the tests run in the guests.

# These programs play a driver's peer, packet by packet.
wire_src := tests/driver/src/wire.c tests/driver/src/wire.h $(dumps_src)
wire_tests := $(addprefix build/tests/,replays answers)
# These speak the migration protocol, too.
migr_tests := $(addprefix build/tests/,deadline forge rcv_fuzz attack own_host gone datagrams)
driver_tests := $(addprefix build/tests/,ioctl_fuzz wqe_fuzz big_read query_stopped gone_back modify_stopped faults privilege looks numbers) $(wire_tests) $(migr_tests)

ALL += $(driver_tests)

# These connect their queue pairs as the tests of dumps do.
$(addprefix build/tests/,query_stopped gone_back modify_stopped faults privilege looks numbers): $(dumps_src)

$(wire_tests) $(migr_tests): $(wire_src)

$(migr_tests): tests/driver/src/migr.c tests/driver/src/migr.h

build/tests/ioctl_fuzz build/tests/wqe_fuzz build/tests/forge build/tests/rcv_fuzz build/tests/attack: $(random_h)

$(driver_tests): build/tests/%: tests/driver/src/%.c $(verbs_headers) $(verbs_lib)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(VERBS_CFLAGS) -o $@.new $(filter tests/%.c,$^) $(VERBS_LIBS) -libverbs -pthread && mv $@.new $@
