# Everything is installed into .venv; nothing outside this folder changes, except a browser (make chromium).
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP_ARGS ?=

CACHE := .pytest_cache
# Files with a marker: importing all others would take half a minute.
marked = $$(grep -rlE --include='test_*.py' 'mark\.($(1))\b' tests | sort)
part = @mkdir -p $(CACHE); rm -f $(CACHE)/$@.status; $(3) $(BIN)/pytest -o cache_dir=$(CACHE)/$@ -m "$(1)" $(2); \
	status=$$?; echo $$status > $(CACHE)/$@.status; exit $$status
# The longest first: a part begins when one before it has ended, so that the last ones end together. None of them may
# wait for another target, which would let all later ones begin before it.
PARTS := test-app test-torchrun test-browser test-recording test-storing test-inside
# Nothing where a browser is there.
BROWSER := $(if $(shell command -v chromium-headless-shell || command -v chromium),,headless-shell)
# Parts of the tests that need neither torchrun nor a browser; the rest of them is test-inside.
APP := tests/app tests/cli tests/views
RECORDING := tests/recorder tests/storage tests/stream
STORING := tests/engines tests/importers tests/packets tests/service tests/store

.PHONY: demo test test-quiet $(PARTS) test-again lint style types bench bench-recorder fuzz audit gpu soak evidence evidence-traces docs man fleet-demo screenshots sample headless-shell chromium clean

demo: $(VENV)/installed  ## browse the recorded sample job on 127.0.0.1:8642
	$(BIN)/sfapp demo --open

fleet-demo: $(VENV)/installed  ## put 200 generated jobs into an S3 server of this machine, ingest them on Ray and browse them on 127.0.0.1:8642
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[app,ray,s3]'
	$(BIN)/python -m benchmarks.fleet_demo

test: $(VENV)/installed headless-shell style  ## all tests: first those that need an idle machine, then types and the rest, four parts at a time
	@$(MAKE) --no-print-directory test-quiet
	@$(MAKE) --no-print-directory --jobs 4 --keep-going --output-sync $(PARTS) types \
	|| $(MAKE) --no-print-directory test-again

# These tests depend on milliseconds, which other programs of the machine may take: a failed test must pass when it is
# repeated.
test-quiet: $(VENV)/installed
	$(BIN)/pytest -o cache_dir=$(CACHE)/$@ -m quiet $(call marked,quiet) \
	|| { [ $$? = 1 ] && $(BIN)/pytest -o cache_dir=$(CACHE)/$@ --last-failed; }

# The parts are sequential, because parallel training processes would compete for the cores that their times depend on.
# Pages and commands are looked at in the time that the other parts leave.
test-inside: $(VENV)/installed
	$(call part,not torchrun and not browser and not quiet,$(addprefix --ignore=,$(APP) $(RECORDING) $(STORING)))

test-recording: $(VENV)/installed
	$(call part,not torchrun and not browser and not quiet,$(RECORDING))

test-storing: $(VENV)/installed
	$(call part,not torchrun and not browser and not quiet,$(STORING))

test-app: $(VENV)/installed
	$(call part,not torchrun and not browser and not quiet,$(APP),nice -n 10)

test-torchrun: $(VENV)/installed $(BROWSER)
	$(call part,torchrun and not quiet,$(call marked,torchrun))

test-browser: $(VENV)/installed $(BROWSER)
	$(call part,browser and not torchrun and not quiet,$(call marked,browser),nice -n 10)

# Tests that failed while the parts shared the cores must pass alone. A part that was interrupted (any status except 0
# and 1) has failed.
test-again: types
	@for part in $(PARTS); do \
		status=$$(cat $(CACHE)/$$part.status) && echo "$$part ended with $$status" && [ "$$status" -le 1 ] || exit 1; \
		[ "$$status" = 0 ] || $(BIN)/pytest -o cache_dir=$(CACHE)/$$part --last-failed || exit 1; \
	done

lint: style types

style: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed
	nice -n 10 $(BIN)/mypy

bench: $(VENV)/installed  ## print every speed as a ratio to its baseline
	$(BIN)/python -m benchmarks

bench-recorder: $(VENV)/installed  ## the recorder's cost for training; needs a quiet machine
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks.recorder --out docs/evidence

FUZZ_MINUTES ?= 10
FUZZ_HISTORIES ?= 300

fuzz: $(VENV)/installed  ## read mutants with every parser, and run random histories of delivery, incidents and stores (30 minutes)
	$(BIN)/python -m benchmarks.fuzz --minutes $(FUZZ_MINUTES)
	$(BIN)/python -m benchmarks.fuzz --histories $(FUZZ_HISTORIES)

# The tools are in an environment of their own, so that they are not in the list. Without a connection to the database of
# vulnerabilities, the list is what to look up.
AUDIT_VENV := .venv-audit

audit: $(VENV)/installed  ## list every installed package in out/sbom.json, and look for known vulnerabilities (5 minutes)
	$(PYTHON) -m venv $(AUDIT_VENV) || python3 -m venv $(AUDIT_VENV)
	$(AUDIT_VENV)/bin/pip install --quiet --disable-pip-version-check $(PIP_ARGS) cyclonedx-bom pip-audit
	@mkdir -p out
	$(AUDIT_VENV)/bin/cyclonedx-py environment $(BIN)/python --output-reproducible --output-file out/sbom.json
	@PIPAPI_PYTHON_LOCATION=$(abspath $(BIN)/python) timeout 240 \
		$(AUDIT_VENV)/bin/pip-audit --skip-editable --progress-spinner off > out/audit.txt 2>&1; status=$$?; \
	grep -v "could not be audited" out/audit.txt | tail -n 40; \
	if grep -q "^Found .* known vulnerabilit" out/audit.txt; then exit 1; fi; \
	unknown=$$(grep -c "could not be audited" out/audit.txt); \
	if [ "$$status" != 0 ]; then echo "The database of vulnerabilities cannot be reached: look up the versions in out/sbom.json."; \
	elif [ "$$unknown" != 0 ]; then echo "$$unknown packages are not in the database that was reached: look them up in out/sbom.json."; fi

# For a machine with a CUDA device: a separate environment that uses the torch of GPU_PYTHON. GPU_WHEELS is a folder of
# wheels for a machine without network. The tests need the same packages as the measurements.
GPU_PYTHON ?= python3
GPU_WHEELS ?=
GPU_VENV := .venv-gpu
GPU_TESTS := tests/recorder/test_gpu.py tests/recorder/test_gpu_waits.py tests/accounting/test_devices.py \
	tests/recorder/test_gpu_captures.py

gpu:  ## tests and measurements with a CUDA device (at most 8 minutes); writes docs/evidence/gpu.md
	$(GPU_PYTHON) -m benchmarks.gpu_environment $(GPU_VENV) $(if $(GPU_WHEELS),--wheels $(GPU_WHEELS)) $(PIP_ARGS)
	$(GPU_VENV)/bin/python -m pytest -m gpu -W default $(GPU_TESTS); tests=$$?; \
	$(GPU_VENV)/bin/python -m benchmarks.gpu --out docs/evidence && exit $$tests

soak: $(VENV)/installed chromium  ## inject faults around streaming jobs, stream 1,088 ranks to one aggregator, open 50 browsers; needs root and Linux (90 minutes)
	$(BIN)/python -m benchmarks.soak --out docs/evidence

evidence: $(VENV)/installed  ## inject faults into real and simulated jobs; write docs/evidence (an hour)
	$(BIN)/python -m benchmarks.experiments
	$(BIN)/python -m benchmarks.experiments --plan waits
	$(BIN)/python -m benchmarks.peers --out docs/evidence
	$(BIN)/python -m benchmarks.ensemble

evidence-traces: $(VENV)/installed  ## import public traces (SFAPP_TRACES) and write docs/evidence/traces.md (10 minutes)
	$(BIN)/python -m benchmarks.traces --huge --out docs/evidence

docs: $(VENV)/installed  ## build the documentation site in out/site, with warnings as errors
	$(BIN)/python assets/reference_pages.py
	$(BIN)/python assets/live_figures.py
	NO_COLOR=1 $(BIN)/zensical build --strict --clean

man: $(VENV)/installed  ## write the manual pages of all commands into assets/man
	$(BIN)/python assets/man_pages.py

screenshots: $(VENV)/installed chromium  ## redraw the pictures in docs/screenshots
	$(BIN)/python assets/screenshots.py

sample: $(VENV)/installed  ## record sample_data/packets again with a real torchrun job
	$(BIN)/python sample_data/record.py

COMPILED := sfapp/recorder/timing/timers.py sfapp/recorder/timing/_timers.pxd sfapp/recorder/timing/hooks.py \
	sfapp/recorder/timing/_hooks.pxd sfapp/packets/page_sizes.py \
	sfapp/packets/_page_sizes.pxd sfapp/accounting/_kernels.pyx

# uv installs in a third of pip's time. It does not read pip's settings, so it is given them; pip installs where uv
# cannot.
PIP_SETTINGS := index-url=/UV_DEFAULT_INDEX extra-index-url=/UV_EXTRA_INDEX_URL find-links=/UV_FIND_LINKS \
	constraint=/UV_CONSTRAINT cert=/SSL_CERT_FILE
UV_SETTINGS := sed -nE $(foreach setting,$(PIP_SETTINGS),-e 's/^[^=]*[.]$(setting)=/p')
REQUIREMENTS := -c constraints.txt -e '.[app,jupyter,dev]'

$(VENV)/installed: pyproject.toml constraints.txt hatch_build.py $(COMPILED)
	$(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check uv \
	&& set -a && eval "$$($(BIN)/pip config list | $(UV_SETTINGS))" && set +a && UV_INDEX_STRATEGY=unsafe-best-match \
		$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(PIP_ARGS) $(REQUIREMENTS) \
	|| $(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) $(REQUIREMENTS)
	touch $@

# The browser tests drive a real Chromium, or its headless shell; measurements and screenshots only the former. Debian
# packages both.
headless-shell:
	@command -v chromium-headless-shell >/dev/null 2>&1 || command -v chromium >/dev/null 2>&1 \
	|| { $(call package,chromium-headless-shell); }

chromium:
	@command -v chromium >/dev/null 2>&1 || { $(call package,chromium); }

package = if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq $(1); \
	elif command -v sudo >/dev/null 2>&1; then sudo apt-get update -qq && sudo apt-get install -y -qq $(1); \
	else echo "A browser is needed: install the package '$(1)' or 'chromium' (needs root or sudo)." >&2; exit 1; fi

clean:
	rm -rf $(VENV) $(GPU_VENV) $(AUDIT_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
