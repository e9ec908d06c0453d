# What a developer runs. Needs Python 3.11+, make and git; the rest goes into .venv.
PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
DOCS_VENV ?= .venv-docs
SQLITE_SETTINGS := tests.settings_sqlite
export PYTHONUNBUFFERED = 1
SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help demo serve serve-open cluster test check faults fuzz soak lint matrix house docs dist bench plans clean

help:
	@echo "make demo     place a thousand orders, run their workflows, kill workers, print the ledger"
	@echo "make serve    keep the demo's site up on http://127.0.0.1:8000/ (orders, admin)"
	@echo "make serve-open  an OJS server without authentication, on 127.0.0.1 only, to develop clients and"
	@echo "              workers and to run conformance suites (PORT=8080); it keeps no data"
	@echo "make cluster  three PostgreSQL under Patroni with etcd and HAProxy, on 127.0.0.1-3, until Ctrl-C;"
	@echo "              ARGS='--synchronous --failsafe' (Debian: patroni python3-etcd etcd-server haproxy)"
	@echo "make test     lint, types, migrations, the suite on PostgreSQL and SQLite; COVERAGE=1 for"
	@echo "              the branch coverage of both together as well, as CI runs it"
	@echo "make check    the loop: lint of what changed since main, and the tests of it (a minute)"
	@echo "make faults   kills, crashes, lost connections, frozen workers, all of it, and the checker's"
	@echo "              verdict (<= 25 minutes); for a release: make faults KILLS=500 JOBS=100000"
	@echo "make fuzz     random and hostile requests to every operation of the API (<= 30 minutes)"
	@echo "make soak     a worker for ten minutes: memory and connections (SECONDS=600)"
	@echo "make lint     ruff, mypy and the migrations check alone"
	@echo "make house    the size of the package and what its core carries, in numbers beside their limits"
	@echo "make matrix   the wheel in an empty folder and tests, on each supported Python/Django pair of"
	@echo "              this machine; ARGS=--whole for the short suite, ARGS=--wheel for the wheel alone,"
	@echo "              ARGS='--only 3.12' for some"
	@echo "make docs     the documentation site, in build/docs/index.html; a warning is an error; then each"
	@echo "              page is typed by a test, in a project of its own"
	@echo "make dist     sdist and wheel in dist/, built twice, checked, and tried in an empty folder;"
	@echo "              QUICK=1 for the wheel alone"
	@echo "make bench    speed beside bare SQL and other queues, 25 minutes; QUICK=1 for 3 minutes,"
	@echo "              ROWS=10000000 for a table of that size as well"
	@echo "make plans    the query plans on a table of ROWS finished jobs (1000000)"
	@echo "make clean    remove the virtual environments, the demo's data and every cache"
	@echo
	@echo "Settings: DATABASE_URL=postgresql://... for a server of your own,"
	@echo "          OJS_DEMO_DATABASE=sqlite for the demo on SQLite, PYTHON=python3.12"

demo:
	@scripts/venv $(VENV) demo $(PYTHON)
	@$(VENV)/bin/python manage.py demo $(ARGS)

serve:
	@scripts/venv $(VENV) demo $(PYTHON)
	@$(VENV)/bin/python manage.py serve $(if $(PORT),--port $(PORT)) $(ARGS)

serve-open:
	@scripts/venv $(VENV) demo $(PYTHON)
	@OJS_DEMO_DEBUG=1 $(VENV)/bin/python manage.py serve_open \
	  --settings example_project.open.settings $(if $(PORT),--port $(PORT)) $(ARGS)

# `exec`: what stops make stops the cluster, and not the shell between them.
cluster:
	@scripts/venv $(VENV) dev $(PYTHON)
	@exec $(VENV)/bin/python -m tests.patroni_cluster $(ARGS)

lint:
	@scripts/venv $(VENV) dev $(PYTHON)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python manage.py makemigrations --check --dry-run --settings $(SQLITE_SETTINGS)

test:
	@scripts/venv $(VENV) dev $(PYTHON)
	@$(VENV)/bin/python scripts/test $(if $(COVERAGE),--coverage)

check:
	@scripts/venv $(VENV) dev $(PYTHON)
	@$(VENV)/bin/python scripts/changed $(ARGS)

# All parts run, whatever fails in one of them. The storm on Patroni is in its small size: each of
# its faults takes half a minute, of which Patroni takes most.
faults:
	@scripts/venv $(VENV) dev $(PYTHON)
	@export OJS_FAULTS_KILLS=$(KILLS) OJS_FAULTS_JOBS=$(JOBS) failed=0; \
	storms() { OJS_FAULTS=full OJS_TEST_TIER=storm OJS_TEST_PROCESSES=0 \
		scripts/suite $(VENV) "$$@" || failed=1; }; \
	storms postgresql --ignore=tests/http --ignore=tests/faults/test_patroni_storm.py $(ARGS); \
	storms sqlite --ignore=tests/http $(ARGS); \
	if $(VENV)/bin/python -m tests.galera_cluster; then \
		storms mariadb tests/faults/test_galera.py tests/faults/test_galera_storm.py; \
	fi; \
	if $(VENV)/bin/python -m tests.patroni_cluster --check; then \
		OJS_FAULTS= OJS_TEST_TIER=storm OJS_TEST_PROCESSES=0 scripts/suite $(VENV) postgresql \
			tests/faults/test_patroni_storm.py || failed=1; \
	fi; \
	exit $$failed

# Not of `make faults`: whether another process takes the processor meanwhile makes no difference.
fuzz:
	@scripts/venv $(VENV) dev $(PYTHON)
	OJS_FAULTS=full OJS_TEST_TIER=storm scripts/suite $(VENV) postgresql $(ARGS) tests/http

soak:
	@scripts/venv $(VENV) dev $(PYTHON)
	OJS_FAULTS_SOAK=$(or $(SECONDS),600) OJS_TEST_TIER=full OJS_TEST_PROCESSES=0 \
		scripts/suite $(VENV) postgresql tests/faults/test_soak.py

house:
	@scripts/venv $(VENV) dev $(PYTHON)
	@$(VENV)/bin/python scripts/house $(ARGS)

matrix:
	@scripts/matrix $(ARGS)

docs:
	@scripts/venv $(DOCS_VENV) docs $(PYTHON)
	@$(DOCS_VENV)/bin/sphinx-build --quiet --fresh-env --nitpicky --fail-on-warning --keep-going \
	  --jobs auto --conf-dir docs . build/docs
	@scripts/venv $(VENV) dev $(PYTHON)
	@OJS_TEST_TIER=full scripts/suite $(VENV) sqlite -q -m pages tests/docs/test_typed.py
	@echo "The site is in build/docs/index.html"

dist:
	@scripts/dist $(PYTHON)

bench:
	@scripts/bench-venv $(BENCH_VENV) $(BENCH_PYTHON)
	@$(BENCH_VENV)/bin/python -m tests.benchmarks $(if $(QUICK),--scale quick) \
	  $(if $(ROWS),--rows $(ROWS)) $(ARGS)

plans:
	@scripts/venv $(VENV) demo $(PYTHON)
	@$(VENV)/bin/python -m tests.benchmarks.plans $(if $(ROWS),--rows $(ROWS)) $(ARGS)

clean:
	rm -rf .venv .venv-* .postgres var demo.sqlite3* build dist *.egg-info
	rm -rf .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
