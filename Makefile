# The front door. `make serve` and `make test` work on a fresh Debian 12; everything else is CMake (CMakePresets.json).
.PHONY: help build serve smollm2 test test-asan test-tsan bench bundle format clean

MODEL ?= models/sluice-tiny
PORT ?= 30000

help:
	@echo "make serve    build, then chat with the bundled model on http://127.0.0.1:$(PORT)"
	@echo "make smollm2  build, fetch SmolLM2-135M-Instruct (98 MB), and serve it there"
	@echo "make build    leaves build/sluice"
	@echo "make test     build and run every test"
	@echo "make bench    measure, side by side, what docs/benchmarks/README.md reports"
	@echo "make bundle   dist/: the stripped program with its private libraries"
	@echo "make format   clang-format over all C++ and CUDA files"

build:
	@tools/setup build
	@tools/configure release $(if $(wildcard build/release/CMakeCache.txt),,-DSLUICE_TESTS=OFF)
	@cmake --build --preset release --target sluice_program
	@ln -sf release/bin/sluice build/sluice

serve: build
	@exec build/sluice serve --model $(MODEL) --port $(PORT)

smollm2: build
	@tools/fetch_smollm2
	@exec build/sluice serve --model models/smollm2 --served-model-name smollm2 --quantization none --port $(PORT)

test:
	@tools/run_tests

test-asan:
	@tools/run_tests asan

test-tsan:
	@tools/run_tests tsan

bench: build
	@cmake --build --preset release --target stream_read fresh_read
	@bench/run

bundle: build
	@tools/setup bundle
	@tools/bundle

format:
	@tools/format

clean:
	rm -rf build dist
