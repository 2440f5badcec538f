# SPDX-License-Identifier: MIT
#
# A static library for what the plugin and godwit both look up in /proc and /sys, and ask the kernel's network, and for the
# standard files of all commands. It is part of each, and not installed.

common_dir := tools/common
common_headers := $(wildcard $(common_dir)/*.h)
common_obj := $(patsubst %.c,build/%.o,$(wildcard $(common_dir)/*.c))
common_lib := build/$(common_dir)/libcommon.a
COMMON_CFLAGS := -I$(common_dir)

$(common_obj): build/%.o: %.c $(common_headers)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -Wshadow -Wmissing-prototypes -fPIC -fvisibility=hidden -D_GNU_SOURCE -c -o $@ $<

$(common_lib): $(common_obj)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rc $@ $(common_obj)
