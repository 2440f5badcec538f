# SPDX-License-Identifier: MIT
# Programs that the tests run in the guests.

# (the peer of a driver, packet by packet)
wire_src := tests/driver/src/wire.c tests/driver/src/wire.h tests/verbs/src/dumps.c tests/verbs/src/dumps.h
wire_tests := $(addprefix build/tests/,replays answers datagrams)
# (and one that speaks the migration protocol)
migr_tests := $(addprefix build/tests/,deadline forge rcv_fuzz attack)
traffic_src := $(wildcard tests/driver/src/traffic*.c)
driver_tests := $(addprefix build/tests/,ioctl_fuzz wqe_fuzz big_read stopctl query_stopped faults privilege looks numbers) $(wire_tests) $(migr_tests)

ALL += build/tests/traffic $(driver_tests)

build/tests/traffic: $(traffic_src) tests/driver/src/traffic.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@.new $(traffic_src) -libverbs -pthread && mv $@.new $@

# (it leads its queue pairs as the tests of dumps do)
build/tests/query_stopped build/tests/faults build/tests/privilege build/tests/looks build/tests/numbers: tests/verbs/src/dumps.c tests/verbs/src/dumps.h

$(wire_tests) $(migr_tests): $(wire_src)

$(migr_tests): tests/driver/src/migr.c tests/driver/src/migr.h

build/tests/ioctl_fuzz build/tests/wqe_fuzz build/tests/forge build/tests/rcv_fuzz build/tests/attack: tests/driver/src/random.h

$(driver_tests): build/tests/%: tests/driver/src/%.c $(verbs_headers) $(verbs_lib)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(VERBS_CFLAGS) -o $@.new $(filter tests/%.c,$^) $(VERBS_LIBS) -libverbs -pthread && mv $@.new $@
