# GNU make. Not PGXS: cargo builds the library, this file puts things where Postgres looks for them.
#
#   make             builds bide for the server that PG_CONFIG belongs to
#   make install     copies it there (DESTDIR is put before every path); builds nothing, so root needs no cargo
#   make uninstall   removes it
#   make package     target/bide/package: a tar.gz, and a .deb where dpkg-deb is
#   make clean       removes all that was built
#   make installcheck   SQL tests against a running server with bide installed (PGHOST, PGPORT ... as for psql)
#
#   make demo        a run that survives a crash, on a server of its own (RUNS=file.jsonl: your own runs)
#   make demo-psql   psql on what the demo left
#   make test        everything in pg_test, on servers of its own (BIDE_MAJORS="15 17": only these)
#   make soak        the tests that run for hours
#   make bench       the benchmarks; ARGS is handed to them
#   make sql         writes the install script anew from the sources

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PG_CONFIG ?= pg_config
DESTDIR ?=
CARGO ?= cargo
CARGO_TARGET_DIR ?= target
RUNS ?=
ARGS ?=

# All of these are asked when used, not before: `make demo` brings a pg_config, so it cannot need one.
ask = $(shell $(PG_CONFIG) --$(1) 2>/dev/null)
major = $(shell $(PG_CONFIG) --version 2>/dev/null | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p')
version = $(shell sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)
library = $(CARGO_TARGET_DIR)/bide/pg$(major)/bide.so
libdir = $(DESTDIR)$(call ask,pkglibdir)
extensiondir = $(DESTDIR)$(call ask,sharedir)/extension
# The program itself rather than a wrapper or link on PATH: cargo builds anew when this path changes.
real_pg_config = $(shell f="$$($(PG_CONFIG) --bindir 2>/dev/null)/pg_config"; [ -x "$$f" ] || f=$$(command -v $(PG_CONFIG)); readlink -f "$$f")

.PHONY: all install uninstall package clean installcheck demo demo-psql test soak bench sql pg_config built headers

all: headers
	PGRX_PG_CONFIG_PATH=$(real_pg_config) $(CARGO) build --release --lib --no-default-features --features pg$(major)
	@# Each major overwrites the one before in cargo's folder, so it gets a place of its own.
	@mkdir -p $(dir $(library))
	@cp -f $(CARGO_TARGET_DIR)/release/libbide.so $(library).new
	@mv -f $(library).new $(library)

pg_config:
	@command -v $(PG_CONFIG) >/dev/null || \
	  { echo "make: $(PG_CONFIG) not found: set PG_CONFIG to the pg_config of your server" >&2; exit 1; }
	@case "$(major)" in 14|15|16|17|18) ;; *) \
	  echo "make: bide supports PostgreSQL 14 to 18; $(PG_CONFIG) says it is $$($(PG_CONFIG) --version | head -n 1)" >&2; exit 1;; esac

headers: pg_config
	@[ -e "$(call ask,includedir-server)/postgres.h" ] || \
	  { echo "make: the server headers of PostgreSQL $(major) are missing (Debian: postgresql-server-dev-$(major))" >&2; exit 1; }

built: pg_config
	@[ -e $(library) ] || { echo "make: bide is not built for PostgreSQL $(major): run make first" >&2; exit 1; }

# A running server has the old library mapped: it is replaced by another file, never written over.
install: built
	@put() { install -m "$$1" "$$2" "$$3/.$$4.new" && mv -f "$$3/.$$4.new" "$$3/$$4" && echo "installed $$3/$$4"; }; \
	install -d -m 755 "$(libdir)" "$(extensiondir)"; \
	put 755 $(library) "$(libdir)" bide.so; \
	for f in bide.control sql/bide--*.sql; do put 644 "$$f" "$(extensiondir)" "$${f##*/}"; done

uninstall: pg_config
	rm -f "$(libdir)/bide.so" "$(extensiondir)/bide.control" "$(extensiondir)"/bide--*.sql

package: built
	@PG_CONFIG=$(PG_CONFIG) MAJOR=$(major) VERSION=$(version) OUT=$(CARGO_TARGET_DIR)/bide/package MAKE=$(MAKE) pg_test/package.sh

clean:
	$(CARGO) clean

installcheck: pg_config
	@mkdir -p $(CARGO_TARGET_DIR)/bide/regress
	$(dir $(call ask,pgxs))../test/regress/pg_regress --bindir=$(call ask,bindir) --inputdir=pg_test/regress \
	  --outputdir=$(CARGO_TARGET_DIR)/bide/regress --dbname=bide_regression --load-extension=bide \
	  $(sort $(basename $(notdir $(wildcard pg_test/regress/sql/*.sql))))

demo:
	@pg_test/demo/demo.sh run $(if $(RUNS),"$(RUNS)")

demo-psql:
	@pg_test/demo/demo.sh psql

test soak sql:
	@pg_test/run.sh $@

bench:
	@pg_test/run.sh bench $(ARGS)
