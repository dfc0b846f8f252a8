# What one does with Presagio, each with one word. `make` alone lists them.
#
# Needs Rust, gcc and make; `make test` installs the rest by name (see TEST_NEEDS).

# Where cargo builds, also when the environment says so.
TARGET    := $(or $(CARGO_TARGET_DIR),target)
PRESAGIO  := $(TARGET)/release/presagio
DEMO_DIR  := $(TARGET)/demo
CLI_DOCS  := $(TARGET)/cli-docs

# Where `make install` puts things: make install PREFIX=/usr DESTDIR=/tmp/package
PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
BINDIR      = $(PREFIX)/bin
LIBDIR      = $(PREFIX)/lib
INCLUDEDIR  = $(PREFIX)/include
MANDIR      = $(PREFIX)/share/man/man1
UNITDIR     = $(LIBDIR)/systemd/system
SHAREDIR    = $(PREFIX)/share/presagio
COMPLETIONS = bash:$(PREFIX)/share/bash-completion/completions/presagio \
	zsh:$(PREFIX)/share/zsh/site-functions/_presagio fish:$(PREFIX)/share/fish/vendor_completions.d/presagio.fish

# What it installs is what was built: release, or BUILD=debug.
BUILD      ?= release
BUILT      ?= $(TARGET)/$(BUILD)
BUILT_LIBS ?= $(BUILT)
PRELOADED  := libpresagio.so libpresagio_inside.so libpresagio_divert.so
LIBRARIES  := libagios.so libpresagio_predict_c.so libpresagio_predict_c.a
HEADERS    := crates/capi/include/agios.h crates/predict-c/include/presagio_predict.h \
	crates/predict-c/include/presagio_predict.hpp
UNITS      := presagio-ionode@.service presagio-council.service
SHARED     := crates/capi/agios.conf $(wildcard packaging/systemd/*.conf) $(wildcard packaging/slurm/*.sh)

# Passed on to every bench: make bench BENCH_FLAGS=--strict
BENCH_FLAGS :=

# Property tests draw the same streams in every run of `make test`, so that a change is judged by what it
# changes; `make soak` draws others, and more of them.
SEED := 20260101

# What the tests need beyond Rust, as command:debian-package.
TEST_NEEDS := gcc:build-essential g++:build-essential valgrind:valgrind strace:strace git:git sqlite3:sqlite3 \
	python3:python3 bindfs:bindfs losetup:mount mkfs.ext4:e2fsprogs rsync:rsync pkg-config:pkg-config lmp:lammps \
	mpirun.openmpi:openmpi-bin mpirun.mpich:mpich h5cc:libhdf5-dev h5pcc.openmpi:libhdf5-openmpi-dev \
	h5pcc.mpich:libhdf5-mpich-dev diod:diod glusterd:glusterfs-server mount.glusterfs:glusterfs-client \
	ip:iproute2 munged:munge fio:fio unshare:util-linux setpriv:util-linux setcap:libcap2-bin openssl:openssl jemalloc-config:libjemalloc-dev \
	google-pprof:google-perftools \
	chromium:chromium node:nodejs npm:npm \
	gdb:gdb shellcheck:shellcheck systemd-analyze:systemd

# Tests of pages drive chromium with Playwright, in the version of the lock file.
BROWSER := crates/cli/tests/browser

.PHONY: help demo build install uninstall test soak test-needs test-packages lint lint-needs bench trained docs-cli clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

demo: build ## build everything, then show in a minute what it does, on this disk (1.1 GB, given back)
	@mkdir -p $(DEMO_DIR)
	@$(PRESAGIO) demo $(DEMO_DIR)

build: ## build everything in release mode
	cargo build --release --workspace

# The libraries that presagio preloads are no one else's, hence a directory of their own: it looks there.
install: ## install what was built (PREFIX=/usr/local, DESTDIR, BUILD=release)
	@[ -x $(BUILT)/presagio ] || { echo "There is no $(BUILT)/presagio. Please run: make build" >&2; exit 1; }
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR)/presagio $(INCLUDEDIR) $(MANDIR) $(UNITDIR) $(SHAREDIR))
	install -m 755 $(BUILT)/presagio $(DESTDIR)$(BINDIR)/presagio
	install -m 755 $(addprefix $(BUILT_LIBS)/,$(PRELOADED)) $(DESTDIR)$(LIBDIR)/presagio
	install -m 644 $(addprefix $(BUILT_LIBS)/,$(LIBRARIES)) $(DESTDIR)$(LIBDIR)
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(SHARED) $(DESTDIR)$(SHAREDIR)
	chmod 755 $(DESTDIR)$(SHAREDIR)/*.sh
	@set -e; for unit in $(UNITS); do \
		sed 's|@BINDIR@|$(BINDIR)|; s|@SYSCONFDIR@|$(SYSCONFDIR)|' packaging/systemd/$$unit > $(DESTDIR)$(UNITDIR)/$$unit; \
	done
	$(BUILT)/presagio man $(DESTDIR)$(MANDIR)
	@set -e; for each in $(COMPLETIONS); do \
		mkdir -p "$$(dirname $(DESTDIR)$${each#*:})"; \
		$(BUILT)/presagio completions $${each%%:*} > $(DESTDIR)$${each#*:}; \
	done

uninstall: ## remove what make install put there (the same PREFIX and DESTDIR)
	rm -f $(DESTDIR)$(BINDIR)/presagio $(addprefix $(DESTDIR)$(LIBDIR)/presagio/,$(PRELOADED)) \
		$(addprefix $(DESTDIR)$(LIBDIR)/,$(LIBRARIES)) $(addprefix $(DESTDIR)$(INCLUDEDIR)/,$(notdir $(HEADERS))) \
		$(addprefix $(DESTDIR)$(SHAREDIR)/,$(notdir $(SHARED))) $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS)) \
		$(DESTDIR)$(MANDIR)/presagio.1 $(DESTDIR)$(MANDIR)/presagio-*.1 \
		$(foreach each,$(COMPLETIONS),$(DESTDIR)$(lastword $(subst :, ,$(each))))
	-rmdir $(DESTDIR)$(LIBDIR)/presagio $(DESTDIR)$(SHAREDIR)

# The model checker replaces the engine's locks and threads, hence a build of its own.
test: test-needs ## install what the tests need, run all of them
	PROPTEST_RNG_SEED=$(SEED) cargo test --workspace
	cargo test -p presagio-engine --features shuttle --test model

soak: test-needs ## property tests with other streams than make test, and twenty times as many
	PROPTEST_CASES=5000 cargo test --release -p presagio-core -p presagio-sched

test-needs: test-packages
	@cd $(BROWSER) && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent --no-audit --no-fund; } || \
		{ echo "Playwright could not be installed from here. Please run: (cd $(BROWSER) && npm ci)" >&2; exit 1; }

test-packages:
	@missing=; \
	for need in $(TEST_NEEDS); do \
		PATH="$$PATH:/usr/sbin:/sbin" command -v "$${need%%:*}" >/dev/null 2>&1 || missing="$$missing $${need##*:}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	echo "The tests need these packages, which are missing:$$missing"; \
	if [ "$$(id -u)" = 0 ]; then as_root=; \
	elif command -v sudo >/dev/null 2>&1; then as_root=sudo; \
	else as_root=false; fi; \
	apt="$$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq"; \
	if command -v apt-get >/dev/null 2>&1 && $$apt update && \
		$$apt install -y --no-install-recommends $$missing; then exit 0; fi; \
	echo "They could not be installed from here. Please run, as root:" >&2; \
	echo "  apt-get update && apt-get install -y$$missing" >&2; \
	exit 1

lint: lint-needs ## rustfmt, clippy and rustdoc, warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace

# A minimal Rust installation has neither.
lint-needs:
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

bench: build ## measure every part and hold it against its bars
	@status=0; \
	for part in $$($(PRESAGIO) bench --list | cut -d ' ' -f 1); do \
		$(PRESAGIO) bench $$part $(BENCH_FLAGS) || status=1; \
	done; \
	exit $$status

trained: build ## are the trees, the network and docs/results.md what this build makes? (minutes)
	$(PRESAGIO) train | diff crates/tune/trees/default.txt -
	$(PRESAGIO) train --network | diff crates/tune/networks/default.txt -
	cargo test --release -p presagio-cli --test repro -- --ignored

docs-cli: build ## write manual pages and shell completions
	@mkdir -p $(CLI_DOCS)
	$(PRESAGIO) man $(CLI_DOCS)/man1
	for shell in bash zsh fish; do $(PRESAGIO) completions $$shell > $(CLI_DOCS)/presagio.$$shell; done

clean: ## remove everything that was built
	cargo clean
