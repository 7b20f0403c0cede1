# `make help` lists every target from the `##` comments below.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# torch is pinned in constraints.txt: the pinned build is the small CPU one.
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz check format docs bench sanitize clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

setup: $(VENV)/.installed ## create .venv with everything in it (quick the second time)

$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard native/*)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -c constraints.txt -e ".[dev]"
	touch $@

demo: setup ## forecast the paper's synthetic set; writes demo/
	$(BIN)/logsparse demo

test: setup ## run every test
	$(BIN)/python -m pytest -n 2 --dist worksteal

fuzz: setup ## run hostile frames, files and folders: make fuzz N=10000 SEED=0
	cd tests && ../$(BIN)/python -m fuzz --number $(or $(N),10000) --seed $(or $(SEED),0)

check: setup ## lint, format check, spelling, strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror native/*.h native/*.cpp
	$(BIN)/codespell src tests docs native benchmarks examples *.md Makefile pyproject.toml
	$(BIN)/mypy

format: setup ## let ruff and clang-format rewrite what they can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i native/*.h native/*.cpp

docs: setup ## build the documentation site in build/docs; warnings and broken links are errors
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html -d build/doctrees docs build/docs
	@echo build/docs/index.html

bench: setup ## run the benchmarks; tables on screen, JSON in benchmarks/results
	for file in load headline attention convolution train; do $(BIN)/python benchmarks/$$file.py || exit 1; done

# A package of its own beside the installed one: the same Python, the kernel built with sanitizers.
SANITIZED := build/sanitize
sanitize: setup ## run the attention tests on a kernel built with AddressSanitizer and UndefinedBehaviorSanitizer
	$(PIP) install --quiet nanobind
	cmake -S native -B $(SANITIZED) -DLOGSPARSE_SANITIZE=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python) >/dev/null
	cmake --build $(SANITIZED) -j 2
	rm -rf $(SANITIZED)/site && mkdir -p $(SANITIZED)/site
	cp -r src/logsparse $(SANITIZED)/site/ && cp $(SANITIZED)/_native*.so $(SANITIZED)/site/logsparse/
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=2 \
	$(BIN)/python tests/sanitized.py $(abspath $(SANITIZED)/site) tests/test_attend.py tests/test_native.py tests/test_attend_step.py \
	    tests/test_maps_weights.py tests/test_layer.py tests/test_padding.py tests/test_layer_convolve.py tests/test_block_feedforward.py \
	    tests/test_block_advance.py

clean: ## remove what the other targets made
	rm -rf $(VENV) build demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
