# skytape: `make help` lists the targets, `make doctor` says what this machine can build.

# ---- options ---------------------------------------------------------------------------------
MODE      ?= release# release | debug | asan
CUDA      ?= auto# auto: where nvcc and a GPU are; 1: always; 0: never
CUDA_ARCH ?= 80 90# real architectures; PTX of the last one is added
PORTABLE  ?= 0# 1: x86-64-v3 binary to carry elsewhere; 0: for this machine
WERROR    ?= 0# 1: warnings are errors (CI)

# ---- tools -----------------------------------------------------------------------------------
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard $(CUDA_HOME)/bin/nvcc))
SHELL     := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
ifeq ($(CUDA),auto)
  WITH_CUDA := $(if $(NVCC),$(shell nvidia-smi -L >/dev/null 2>&1 && echo 1))
else
  WITH_CUDA := $(filter 1,$(CUDA))
endif
CUDA_ROOT := $(if $(WITH_CUDA),$(abspath $(dir $(realpath $(NVCC)))..))
has = $(shell echo '\#include <$(1)>' | $(CXX) $(CPPFLAGS) -E -x c++ - >/dev/null 2>&1 && echo 1)

# ---- flags -----------------------------------------------------------------------------------
OPTIMISE_release := -O3 -DNDEBUG
OPTIMISE_debug   := -O0 -g
OPTIMISE_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
TARGET   := $(if $(filter x86_64,$(shell uname -m)),$(if $(filter 1,$(PORTABLE)),-march=x86-64-v3,-march=native -mprefer-vector-width=512))
WARNINGS := -Wall -Wextra -Wshadow $(if $(filter 1,$(WERROR)),-Werror)
REVISION := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
OPTIONAL := $(foreach h,DNNL:dnnl.h PNG:png.h ARCHIVE:archive.h CURL:curl/curl.h,\
  $(if $(call has,$(lastword $(subst :, ,$h))),$(firstword $(subst :, ,$h))))
DEFINES  := $(OPTIONAL:%=-DSKYTAPE_HAVE_%) $(if $(WITH_CUDA),-DSKYTAPE_CUDA)
# No -ffast-math: it deletes NaN tests. errno and trapping are what keeps libm calls from vectorising.
ALL_CXXFLAGS = -std=c++20 $(OPTIMISE_$(MODE)) $(TARGET) -fopenmp -fno-math-errno -fno-trapping-math \
  $(WARNINGS) $(DEFINES) -I. $(if $(wildcard /usr/include/eigen3),-isystem /usr/include/eigen3) $(CPPFLAGS) $(CXXFLAGS)
ALL_NVCCFLAGS = -std=c++20 -O3 -lineinfo $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$a,code=sm_$a) \
  -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH)) --expt-relaxed-constexpr \
  -Xcompiler -fopenmp,-Wall $(if $(filter 1,$(WERROR)),-Werror all-warnings) $(DEFINES) -I. $(CPPFLAGS) $(NVCCFLAGS)
LIBS := $(if $(filter DNNL,$(OPTIONAL)),-ldnnl) $(if $(filter PNG,$(OPTIONAL)),-lpng) $(if $(filter ARCHIVE,$(OPTIONAL)),-larchive) \
  $(if $(filter CURL,$(OPTIONAL)),-lcurl) -lz -l:libfmt.a \
  $(if $(WITH_CUDA),-L$(CUDA_ROOT)/lib64 -Wl$(comma)-rpath$(comma)$(CUDA_ROOT)/lib64 -lcublas -lcurand -lcudart)
comma := ,

# ---- sources (a new file needs no edit) ----------------------------------------------------------
DIRS     := tensor autograd attention nn data train
B        := build/$(MODE)-$(if $(WITH_CUDA),cuda,cpu)
CPU_SRC  := $(filter-out train/main.cpp,$(wildcard $(DIRS:%=%/*.cpp)))
CUDA_SRC := $(if $(WITH_CUDA),$(wildcard $(DIRS:%=%/*.kernel.cpp) $(DIRS:%=%/*.cu)))
TEST_SRC := $(wildcard tests/*.cpp tests/*/*.cpp)
OBJ      := $(CPU_SRC:%=$B/%.o) $(CUDA_SRC:%=$B/%.cuda.o)
TEST_OBJ := $(TEST_SRC:%=$B/%.o)

.PHONY: all
all: build/skytape build/libskytape.a ## build what this machine can build

# ---- rules -----------------------------------------------------------------------------------
$B/flags: FORCE
	@mkdir -p $(@D); echo '$(CXX) $(ALL_CXXFLAGS) | $(NVCC) $(ALL_NVCCFLAGS)' | cmp -s - $@ || \
	  echo '$(CXX) $(ALL_CXXFLAGS) | $(NVCC) $(ALL_NVCCFLAGS)' > $@
$B/%.cpp.o: %.cpp $B/flags
	@mkdir -p $(@D); echo "  c++   $<"
	@$(CXX) $(ALL_CXXFLAGS) -MMD -MP -c $< -o $@
$B/%.cuda.o: % $B/flags
	@mkdir -p $(@D); echo "  nvcc  $<"
	@$(NVCC) $(ALL_NVCCFLAGS) -MMD -MP -x cu -c $< -o $@
$B/libskytape.a: $(OBJ)
	@rm -f $@; ar rcs $@ $^
$B/skytape: $B/train/main.cpp.o $B/libskytape.a
	@echo "  link  $@"; $(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) $^ $(LIBS) $(LDLIBS) -o $@
$B/skytape_tests: $(TEST_OBJ) $B/libskytape.a
	@echo "  link  $@"; $(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) $^ $(LIBS) $(LDLIBS) -o $@
build/skytape: $B/skytape FORCE
	@ln -sfn $(B:build/%=%)/skytape $@
build/libskytape.a: $B/libskytape.a FORCE
	@ln -sfn $(B:build/%=%)/libskytape.a $@
-include $(OBJ:.o=.d) $(TEST_OBJ:.o=.d)
FORCE:
