# Every target sets up what it needs: from a fresh clone, `make demo` or `make test` is enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup-done
JAR := $(VENV)/.delta-jar-done

.DEFAULT_GOAL := help
.PHONY: help check setup demo test test-all test-fast lint types contracts plugin bench bench-service \
    demo-failover soak-failover soak-power-cut bench-members bench-answers bench-source bench-jobs bench-s3 bench-messages bench-amqp bench-http bench-policies bench-hostile bench-brokerj pictures mutants soak wheel check-schedules lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check:  ## say what this machine lacks
	@PYTHON="$(PYTHON)" sh .ci/check-machine

setup: $(JAR)  ## .venv with every dependency, and Delta's jar

$(SETUP): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" sh .ci/check-machine
	@echo "setup: creating $(VENV); the first time this downloads Spark and builds proton (minutes)"
	@$(PYTHON) -m venv $(VENV)
	@sh .ci/with-progress "setup: pip installs what requirements.lock names" \
	    $(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@sh .ci/with-progress "setup: pip installs this checkout" \
	    $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(JAR): $(SETUP)
	@echo "setup: fetching Delta's jar for Spark"
	@sh .ci/with-progress "setup: Spark fetches the jar" \
	    $(BIN)/python -c "from sparkstore.session import local_session; local_session('setup').stop()"
	@touch $@

demo: setup  ## real messages in, the broker killed, nothing lost, two engines answer (under 2 minutes)
	@$(BIN)/python -m broker_shim.demo

demo-failover: setup  ## two brokers under load, whoever serves is killed three times and cut off once (2 minutes)
	@$(BIN)/python -m jobs.benchmarks.demo_failover

test: setup  ## everything CI needs: unit, contract, properties, system, spark, architecture
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not thorough" --durations=25

test-all: setup  ## every test, also those that only go further into what others show
	@SPARKSTORE_SPARK=shipped \
	    $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-fast: $(SETUP)  ## tests without a JVM and without other processes
	@$(BIN)/python -m pytest -m "not spark and not slow and not system"

lint: $(SETUP)  ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(SETUP)  ## mypy --strict
	@$(BIN)/mypy

contracts: $(SETUP)  ## who may import whom
	@$(BIN)/lint-imports

plugin:  ## the Broker-J plugin: broker_shim/brokerj/target/sparkstore-brokerj.jar (needs mvn)
	@mvn -q -B -f broker_shim/brokerj/pom.xml package -DskipTests
	@ls broker_shim/brokerj/target/sparkstore-brokerj.jar

bench: setup  ## the figures of docs/figures.md, beside the machine's own
	@$(BIN)/python -m jobs.benchmarks.bench_store $(if $(wildcard ../shared/peers/brokerj),,--no-peer)
	@$(BIN)/python -m jobs.benchmarks.bench_log all
	@$(BIN)/python -m jobs.benchmarks.bench_sql
	@$(BIN)/python -m jobs.benchmarks.bench_interleaved

bench-service: setup  ## requests a second of the store service, beside the machine's own figures
	@$(BIN)/python -m jobs.benchmarks.bench_service

bench-members: $(SETUP)  ## several brokers on one set of queues beside one alone (COUNT=..., ROUNDS=...)
	@$(BIN)/python -m jobs.benchmarks.bench_members --rounds $(or $(ROUNDS),3) --count $(or $(COUNT),20000)
	@$(BIN)/python -m jobs.benchmarks.bench_member_kills --kills $(or $(KILLS),50) --count $(or $(COUNT),20000)

bench-answers: setup  ## seconds until SQL answers: DuckDB, Spark, and its own floor (WAITING="2000 1000000", ROUNDS=...)
	@$(BIN)/python -m jobs.benchmarks.bench_answers --waiting $(or $(WAITING),2000 1000000) --rounds $(or $(ROUNDS),5)

bench-source: $(SETUP)  ## what Spark's sink publishes, and its source reads, a second (COUNT=..., ROWS=...)
	@$(BIN)/python -m jobs.benchmarks.bench_source $(or $(COUNT),100000)
	@$(BIN)/python -m jobs.benchmarks.bench_source_reads $(or $(ROWS),1000000)
	@$(BIN)/python -m jobs.benchmarks.bench_source_takes $(or $(COUNT),200000)

bench-jobs: setup  ## what the Spark jobs cost at 10,000,000 records (RECORDS=...), with a picture
	@$(BIN)/python -m jobs.benchmarks.bench_jobs --records $(or $(RECORDS),10000000)
	@$(BIN)/python -m jobs.benchmarks.bench_beside

bench-s3: $(SETUP)  ## what a copy to a bucket and a store on one cost (builds versitygw: minutes, Go 1.25)
	@$(BIN)/python -m jobs.benchmarks.bench_s3 --messages $(or $(COUNT),200000)
	@$(BIN)/python -m jobs.benchmarks.bench_s3_store --messages $(or $(COUNT),200000)

bench-messages: $(SETUP)  ## what a name, a selector and a waiting message cost; exit code 1 if too much
	@$(BIN)/python -m jobs.benchmarks.bench_addresses
	@$(BIN)/python -m jobs.benchmarks.bench_addresses --queues 1000
	@$(BIN)/python -m jobs.benchmarks.bench_selector
	@$(BIN)/python -m jobs.benchmarks.bench_memory
	@$(BIN)/python -m jobs.benchmarks.bench_growth

bench-amqp: setup  ## the AMQP listener beside the one on proton and Broker-J (ROUNDS=..., COUNT=...)
	@$(BIN)/python -m jobs.benchmarks.bench_amqp --rounds $(or $(ROUNDS),5) --count $(or $(COUNT),20000)
	@$(BIN)/python -m jobs.benchmarks.bench_codec_0_10

bench-http: $(SETUP)  ## what the HTTP port answers, and what it costs the listener (ROUNDS=..., COUNT=...)
	@$(BIN)/python -m jobs.benchmarks.bench_http --rounds $(or $(ROUNDS),5) --count $(or $(COUNT),50000)

pictures: $(SETUP)  ## docs/pictures: the console in a real Chromium, with two minutes in its charts
	@mkdir -p docs/pictures
	@SPARKSTORE_PICTURES=docs/pictures $(BIN)/python -m pytest -q tests/system/test_console_views.py -k "charts or typed or first_page"

bench-policies: $(SETUP)  ## how long a policy takes that alters 10,000 queues of a running broker
	@$(BIN)/python -m jobs.benchmarks.bench_policies

bench-hostile: $(SETUP)  ## what a hostile peer costs an honest one, attack by attack (ATTACKS=...); 1 if too much
	@$(BIN)/python -m jobs.benchmarks.bench_hostile $(ATTACKS)
	@$(BIN)/python -m jobs.benchmarks.bench_hostile_http
	@$(BIN)/python -m jobs.benchmarks.bench_hang_ups

bench-brokerj: setup  ## Broker-J on this store beside BDB JE: 25 minutes (needs Maven and ../shared/peers; STORES=...)
	@for size in 256 4096; do \
	    $(BIN)/python -m jobs.benchmarks.bench_brokerj --size $$size --n 8000 \
	        --stores $(or $(STORES),sparkstore BDB) && \
	    $(BIN)/python -m jobs.benchmarks.bench_brokerj --size $$size --n 3000 --clients \
	        --stores $(or $(STORES),sparkstore BDB) || exit 1; done
	@$(BIN)/python -m jobs.benchmarks.bench_backlog

soak: setup  ## kill -9 at random points, hundreds of times (COUNT=100000 messages in buckets); ten minutes of nearly AMQP 1.0 and ten of 0-10, ten of histories
	@$(BIN)/python -m jobs.benchmarks.soak $(or $(KILLS),300)
	@SPARKSTORE_SERVICE_KILLS=$(or $(KILLS),300) \
	    $(BIN)/python -m pytest tests/system/test_service_kill_loop.py tests/system/test_runs_killed.py
	@SPARKSTORE_SINK_KILLS=$(or $(KILLS),300) SPARKSTORE_TICKET_KILLS=$(or $(KILLS),1000) \
	    $(BIN)/python -m pytest --timeout 7200 tests/system/test_sink_killed.py tests/system/test_tickets_killed.py
	@SPARKSTORE_LINK_KILLS=$(or $(KILLS),100) \
	    $(BIN)/python -m pytest tests/system/test_links_killed.py
	@SPARKSTORE_BUCKET_KILLS=$(or $(KILLS),100) SPARKSTORE_BUCKET_MESSAGES=$(or $(COUNT),0) \
	    $(BIN)/python -m pytest --timeout 14400 tests/system/test_bucket_store_killed.py
	@SPARKSTORE_STOPPED_JOBS=50 \
	    $(BIN)/python -m pytest --timeout 3600 tests/system/test_bucket_job_stopped.py
	@SPARKSTORE_SOAK=1 $(BIN)/python -m pytest tests/properties
	@$(BIN)/python -m jobs.benchmarks.fuzz_amqp 1200
	@SPARKSTORE_FOLD_SECONDS=600 $(BIN)/python -m pytest --timeout 1800 tests/spark/test_folds_agree.py
	@SPARKSTORE_JOB_KILLS=50 $(BIN)/python -m pytest tests/spark/test_killed_jobs.py \
	    tests/spark/test_replicate_killed.py tests/spark/test_reconcile_killed.py
	@SPARKSTORE_COMMIT_KILLS=50 $(BIN)/python -m pytest --timeout 7200 \
	    tests/spark/test_killed_beside_a_store.py

POWERLOSS := ../shared/tools/powerloss/powerloss.py
soak-failover: setup  ## a hundred kills (COUNT=) of whoever serves of two brokers, and a third as many of all else
	@SPARKSTORE_FAILOVERS=$(or $(COUNT),100) $(BIN)/python -m pytest tests/system/test_failover.py -q -s --timeout 3600 \
	    -o tmp_path_retention_policy=failed
	@$(MAKE) --no-print-directory soak-power-cut

soak-power-cut: setup  ## sixty power cuts (POINTS=) of either machine of a pair, if there is a tool for it (POWERLOSS=)
	@for machine in primary standby; do test ! -f "$(POWERLOSS)" || \
	    $(BIN)/python -m jobs.benchmarks.soak_power_cut $$machine "$(POWERLOSS)" $(or $(POINTS),60) || exit 1; done

mutants: setup  ## faults put into the code, one at a time: a test must notice each (FAULTS=...)
	@$(BIN)/python -m tests.mutants $(FAULTS)

WHEEL := build/wheel-venv
$(WHEEL)/.done: requirements.lock
	@PYTHON="$(PYTHON)" sh .ci/check-machine python
	@echo "wheel: making $(WHEEL), an environment to build in"
	@$(PYTHON) -m venv $(WHEEL)
	@awk '/^setuptools==/ {found = 1} found {print} found && !/\\$$/ {exit}' requirements.lock >$(WHEEL)/setuptools.lock
	@sh .ci/with-progress "wheel: pip installs setuptools" \
	    $(WHEEL)/bin/python -m pip install --quiet --require-hashes -r $(WHEEL)/setuptools.lock
	@touch $@

wheel: $(WHEEL)/.done  ## dist/*.whl: the packages, SQL, the jobs and their schedules; seconds, with Python alone
	@rm -rf build/lib build/bdist.*  # else modules that are gone would be in it
	@sh .ci/with-progress "wheel: pip builds it" \
	    $(WHEEL)/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

AIRFLOW := build/airflow-venv
$(AIRFLOW)/.done: tests/schedules/airflow.txt
	@$(PYTHON) -m venv $(AIRFLOW)
	@$(AIRFLOW)/bin/python -m pip install --quiet -r tests/schedules/airflow.txt
	@touch $@

check-schedules: $(SETUP) $(AIRFLOW)/.done  ## conf/schedules, the DAGs by a real Airflow of its own
	@$(BIN)/python -m pytest -q tests/schedules
	@AIRFLOW_HOME="$(CURDIR)/build/airflow-home" AIRFLOW__CORE__LOAD_EXAMPLES=False \
	    $(AIRFLOW)/bin/python tests/schedules/import_dags.py

lock:  ## requirements.lock from requirements.in (needs uv)
	@uv pip compile requirements.in -o requirements.lock --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links

clean:  ## remove the environment, caches and what demo, tests and bench left
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
