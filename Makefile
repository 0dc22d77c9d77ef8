# Kernelwright. `make help` lists what there is.
#
# Each command sets itself up on first use (.venv, one to two minutes) and is quick
# from then on. PYTHON=/some/python uses that interpreter as it is and installs
# nothing: a cluster's, a container's.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help

ifdef PYTHON
  PY := env PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)
  learn dev: ;
else
  VENV := $(or $(KERNELWRIGHT_VENV),.venv)
  PY := $(VENV)/bin/python
  BOOTSTRAP = @command -v python3 >/dev/null || \
	{ echo "Kernelwright: no python3 on the PATH: wanted 3.11 or newer. Mend: apt-get install python3 python3-venv" >&2; exit 2; }; \
	python3 tools/bootstrap.py
  learn: ; $(BOOTSTRAP) learn $(EXTRA)
  dev: ; $(BOOTSTRAP) dev
endif
.PHONY: learn dev

##@ Learn
.PHONY: setup lab grade update notebooks test book
setup: learn ## set this machine up (the other commands do it too; EXTRA=fpga)

lab: learn ## open JupyterLab on chapter 1
	$(PY) -m jupyterlab chapters/01_vector_add.ipynb

grade: learn ## grade chapters/ (SUBMISSION=folder|notebook ONLY=… SEED=…)
	@$(PY) -m autograder grade \
	  --submission "$(or $(SUBMISSION),chapters)" \
	  $(if $(ONLY),--only "$(ONLY)") $(if $(SEED),--seed "$(SEED)") \
	  $(if $(OUT),--out "$(OUT)")

update: learn ## carry your exercises over into a newer edition of the notebooks
	$(PY) -m autograder.authoring update

notebooks: dev ## write chapters/*.ipynb from chapters/*.md
	$(PY) -m autograder.authoring notebooks

test: dev ## run the tests that this machine can (FULL=1 PYTEST=…)
	$(PY) -m pytest $(if $(FULL),--full) $(PYTEST)

book: dev ## build the book (SOLUTIONS=0: without answers)
	SOLUTIONS=$(or $(SOLUTIONS),1) $(PY) book/build.py

# for teachers
##@ With the solutions
.PHONY: demo grade-class release bench
demo: learn ## train, compress and generate with a small transformer (STEPS=n)
	@$(PY) -m solutions.transformer.demo $(if $(STEPS),--steps $(STEPS))

grade-class: learn ## grade a class, many at a time (CLASS=folder SEED=… JOBS=n)
	@$(PY) -m autograder class \
	  $(or $(CLASS),$(error CLASS= names the folder that holds a folder, .ipynb or .zip for each student)) \
	  $(if $(ONLY),--only "$(ONLY)") $(if $(SEED),--seed "$(SEED)") \
	  $(if $(JOBS),--jobs "$(JOBS)") $(if $(OUT),--out "$(OUT)")

release: dev ## write the student edition: no solutions, no answers
	$(PY) -m autograder.authoring release

bench: learn ## time the solutions on this machine (ONLY=stem CHECK=1)
	$(PY) -m benchmarks $(ONLY) $(if $(CHECK),--check)

##@ Develop
.PHONY: new-chapter mistakes mutants lint lock format nbval
new-chapter: dev ## write all files of a new chapter (STEM=… TITLE="…")
	@$(PY) -m autograder.authoring new-chapter \
	  "$(or $(STEM),$(error STEM= names the chapter in every path, such as tensor_cores))" \
	  "$(or $(TITLE),$(error TITLE= is its heading, such as "Tensor cores"))"

mistakes: dev ## run the known mistakes and keep what they put out (ONLY=…)
	$(PY) -m autograder.authoring mistakes $(if $(ONLY),--only "$(ONLY)")

mutants: dev ## grade generic mutants of the answers (ONLY=… SAMPLE=n JOBS=n)
	@$(PY) -m autograder.authoring mutants \
	  $(if $(ONLY),--only "$(ONLY)") $(if $(SAMPLE),--sample $(SAMPLE)) \
	  $(if $(JOBS),--jobs $(JOBS))

lint: dev ## ruff, mypy, clang-format, notebooks in step (make format mends)
	@failed=0; \
	$(PY) -m ruff check . || failed=1; \
	$(PY) -m ruff format --check . || failed=1; \
	$(PY) -m mypy || failed=1; \
	git ls-files -z -- '*.cu' '*.cuh' '*.cpp' '*.h' \
	  | xargs -0 -r $(PY) tools/clang_format.py || failed=1; \
	$(PY) -m autograder.authoring check || failed=1; \
	exit $$failed

lock: dev ## keep the versions that are installed here as those to install
	@{ sed -n '/^#/p' tools/locked.txt; \
	  $(PY) -m pip freeze --exclude-editable \
	    | sed -E '/^(cuda|nvidia)-/d; s/[+].*//'; } > tools/locked.new \
	  && mv tools/locked.new tools/locked.txt

format: dev ## put Python and C++ into the project's form
	$(PY) -m ruff check --fix --exit-zero --quiet .
	$(PY) -m ruff format .
	git ls-files -z -- '*.cu' '*.cuh' '*.cpp' '*.h' \
	  | xargs -0 -r $(PY) tools/clang_format.py -i

nbval: dev ## run the notebooks, untouched and solved
	$(PY) -m autograder.authoring nbval

# /for teachers
##@ Other
.PHONY: help clean
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nNo .venv wanted? PYTHON=/some/python make grade uses that one as it is.\n'

clean: ## remove what was built (not .venv, not your notebooks)
	rm -rf book/_build _build grades dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
