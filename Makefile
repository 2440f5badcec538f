CC = gcc
Q = @
say = @printf '  %-7s %s\n' $(1) $(2)
include tests/vm/vm.mk
