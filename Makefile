# What each goal needs, and nothing more: the work is done by the scripts in tools/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# Steps are in order and each uses all cores itself.
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

# While make reads this file, so that a machine that cannot do it is refused in one line and nothing has been tried.
UNFIT := $(shell tools/preflight.sh $(MAKECMDGOALS) 2>&1)
ifneq ($(UNFIT),)
$(error $(UNFIT))
endif

STAMP := target/stamp
KERNEL_PROGRAMS := $(patsubst %.c,%.o,$(wildcard xdp/*.bpf.c experiments/*.bpf.c))
# Folders too, so that a file that is gone is noticed.
SOURCES := pyproject.toml Cargo.toml Cargo.lock $(wildcard README.md) $(shell find zeroserve xdp appliance experiments \
	-name __pycache__ -prune -o -name '*.bpf.o' -prune -o -name '*.so' -prune -o -name 'site.tar*' -prune -o -print)

.PHONY: help demo test bench build lint lock clean

help:
	@echo 'make demo    build everything and run the main experiment in the built-in lab (root)'
	@echo 'make test    build everything and run all tests (root)'
	@echo 'make bench   compare the server with nginx and pure Python, the loader with BCC (root)'
	@echo 'make build   build the wheel and install it into .venv'
	@echo 'make lint    check format, types and habits; changes nothing'
	@echo 'make lock    resolve the Python dependencies anew'
	@echo 'make clean   remove what make made; results/ stays'

demo: $(STAMP)/wheel
	@tools/demo.sh

test: $(STAMP)/wheel $(STAMP)/packages-test $(STAMP)/nginx
	@tools/test.sh

bench: $(STAMP)/wheel $(STAMP)/packages-test $(STAMP)/packages-bench $(STAMP)/nginx
	@.venv/bin/python bench/servers.py $(BENCH_ARGS)
	@.venv/bin/python bench/loader.py

build: $(STAMP)/wheel

lint: .venv/made $(STAMP)/packages-build $(STAMP)/packages-lint
	@tools/lint.sh

lock: .venv/made
	@tools/lock.sh

clean:
	@tools/clean.sh

$(STAMP)/packages-%: tools/debian-packages.txt
	@mkdir -p $(@D)
	@tools/packages.sh $*
	@touch $@

$(STAMP)/nginx: | $(STAMP)/packages-run
	@tools/nginx.sh
	@touch $@

.venv/made: requirements.lock requirements-dev.lock tools/venv.sh | $(STAMP)/packages-run
	@tools/venv.sh
	@touch $@

%.bpf.o: %.bpf.c $(wildcard xdp/*.h) tools/bpf.sh | $(STAMP)/packages-run $(STAMP)/packages-build
	@tools/bpf.sh $< $@

appliance/site.tar: $(shell find appliance/site -type f) $(wildcard zeroserve/*.py zeroserve/sdk/*) tools/site.sh | .venv/made
	@tools/site.sh

$(STAMP)/wheel: $(SOURCES) $(KERNEL_PROGRAMS) appliance/site.tar .venv/made tools/wheel.sh tools/check_wheel.py
	@tools/wheel.sh
	@touch $@
