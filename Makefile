# skytape: `make help` lists the targets, `make doctor` says what this machine can build.

# ---- options ---------------------------------------------------------------------------------
MODE      ?= release# release | debug | asan
CUDA      ?= $(if $(filter gpu-%,$(MAKECMDGOALS)),1,auto)# auto: where nvcc and a GPU are; 1: always; 0: never; simulated: GPU code on the CPU, for tests
MPI       ?= auto# several ranks. auto: where mpicc is; 1: always; 0: never
CUDA_ARCH ?= 80 90# real architectures; PTX of the last one is added
PORTABLE  ?= 0# 1: x86-64-v3 binary to carry elsewhere, with lib/ beside it; 0: for this machine
WERROR    ?= 0# 1: warnings are errors (CI)

# ---- tools -----------------------------------------------------------------------------------
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard $(CUDA_HOME)/bin/nvcc))
SPACE     := $(subst ,, )
COMMA     := ,
SHELL     := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules
# Where ccache is installed, what was compiled once in any checkout is not compiled again.
CCACHE    ?= $(shell command -v ccache 2>/dev/null)
export CCACHE_SLOPPINESS := pch_defines,time_macros
export CCACHE_NOHASHDIR  := 1
export CCACHE_PCH_EXTSUM := 1# a precompiled header is known by its text, not by its bytes
# As many compilers as cores; a -j that you give wins. Several goals keep their order.
ifeq ($(MAKELEVEL)$(word 2,$(MAKECMDGOALS)),0)
  MAKEFLAGS += -j$(shell nproc)
endif
ifeq ($(CUDA),auto)
  WITH_CUDA := $(if $(NVCC),$(shell nvidia-smi -L >/dev/null 2>&1 && echo 1))
else
  WITH_CUDA := $(filter 1 simulated,$(CUDA))
endif
SIMULATED := $(filter simulated,$(WITH_CUDA))# tests/cuda_simulator stands in for nvcc, cuBLAS and the GPU
CUDA_ROOT := $(if $(filter 1,$(WITH_CUDA)),$(abspath $(dir $(realpath $(NVCC)))..))
# MPI is used where it is installed, and never installed from here. Its compiler says what it adds.
MPICC     ?= $(shell command -v mpicc 2>/dev/null)
WITH_MPI  := $(if $(filter 1,$(MPI)),1,$(if $(filter auto,$(MPI)),$(if $(MPICC),1)))
MPI_SAYS  := $(if $(and $(WITH_MPI),$(MPICC)),$(shell $(MPICC) -show))
MPI_FLAGS := $(if $(WITH_MPI),-DSKYTAPE_HAVE_MPI -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_SAYS))))
# NCCL comes with CUDA's toolkit, or beside it.
WITH_NCCL := $(if $(CUDA_ROOT),$(firstword $(wildcard $(CUDA_ROOT)/include/nccl.h /usr/include/nccl.h)))
# What is installed, written once by the dependency check (which installs what is missing where it
# may); make reads it again when it changes. `make clean` forgets it.
GOALS := $(or $(MAKECMDGOALS),all)
ifneq ($(filter-out help doctor clean format format-check,$(GOALS)),)
include build/dependencies.mk
$(if $(and $(filter 1,$(MPI)),$(if $(MPICC),,none)),$(error MPI=1: no mpicc here; to install it: apt-get install libopenmpi-dev openmpi-bin))
endif
build/dependencies.mk: train/scripts/dependencies.sh
	@mkdir -p build; CXX='$(CXX)' CPPFLAGS='$(CPPFLAGS)' $< --install > $@

# ---- flags -----------------------------------------------------------------------------------
OPTIMISE_release := -O3 -DNDEBUG
OPTIMISE_debug   := -O0 -g
OPTIMISE_asan    := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
TARGET   := $(if $(filter x86_64,$(shell uname -m)),$(if $(filter 1,$(PORTABLE)),-march=x86-64-v3,-march=native -mprefer-vector-width=512))
# g++ 12 stored a constant array of twelve ones and two zeros by registers of 512 bits as fourteen ones
# (tests/tour/04_method.cpp saw it, on a CPU that -march=native tunes for znver3).
TARGET   += $(if $(shell $(CXX) --help=target 2>/dev/null | grep -e -mstore-max),-mstore-max=128)
# -Wno-restrict: g++ 12 warns about its own std::string operator+ (GCC bug 105651).
WARNINGS := -Wall -Wextra -Wshadow -Wno-restrict $(if $(filter 1,$(WERROR)),-Werror)
REVISION := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
# By itself g++ collects garbage from 128 MB on, which the precompiled headers take already.
ROOM     := $(if $(findstring Free Software,$(shell $(CXX) --version)),--param=ggc-min-heapsize=600000)
# Libraries that one file uses each: with them or without, no other file is compiled anew.
OF_ONE_FILE := CSV UTF8PROC SENTENCEPIECE
DEFINES  := $(patsubst %,-DSKYTAPE_HAVE_%,$(filter-out $(OF_ONE_FILE),$(OPTIONAL))) $(if $(WITH_CUDA),-DSKYTAPE_CUDA) $(if $(SIMULATED),-DSKYTAPE_CUDA_SIMULATED) $(if $(filter 1,$(PORTABLE)),-DFMT_HEADER_ONLY)
# No -ffast-math: it deletes NaN tests. errno and trapping are what keeps libm calls from vectorising.
# Objects serve the program and, by -fPIC, the Python module.
ALL_CXXFLAGS = -std=c++20 $(OPTIMISE_$(MODE)) $(TARGET) -fopenmp -fno-math-errno -fno-trapping-math -fPIC -fno-semantic-interposition \
  $(ROOM) $(WARNINGS) $(DEFINES) -I. $(if $(SIMULATED),-Itests/cuda_simulator) $(EIGEN_FLAGS) $(CPPFLAGS) $(CXXFLAGS)
ALL_NVCCFLAGS = -std=c++20 -O3 -lineinfo $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$a,code=sm_$a) \
  -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH)) --expt-relaxed-constexpr \
  $(COMPRESS) -Xptxas -v -Xcompiler -fopenmp,-fPIC,-Wall $(if $(filter 1,$(WERROR)),-Werror all-warnings) $(DEFINES) -I. $(CPPFLAGS) $(NVCCFLAGS)
# A carried program has a fifth of the machine code's size; nvcc knows how from CUDA 12.8 on.
COMPRESS := $(if $(and $(CUDA_ROOT),$(filter 1,$(PORTABLE))),$(shell $(NVCC) --help | grep -q -e --compress-mode && echo --compress-mode=size))
# Each access of simulated kernels is watched for races, which address sanitizer does not allow.
RACES    := $(if $(SIMULATED),$(if $(filter asan,$(MODE)),,-fsanitize=thread))
# As nvcc does, the simulator defines __CUDACC__ and includes the runtime's header first.
CUDA_COMPILE = $(CCACHE) $(if $(SIMULATED),$(CXX) $(ALL_CXXFLAGS) $(RACES) -D__CUDACC__ -include cuda_runtime.h -Wno-unknown-pragmas -x c++,$(NVCC) $(ALL_NVCCFLAGS) -x cu)
LIBS := $(if $(filter DNNL,$(OPTIONAL)),-ldnnl) $(if $(filter PNG,$(OPTIONAL)),-lpng) $(if $(filter ARCHIVE,$(OPTIONAL)),-larchive) \
  $(if $(filter CSV,$(OPTIONAL)),-lcsv) $(if $(filter CURL,$(OPTIONAL)),-lcurl) $(if $(filter UTF8PROC,$(OPTIONAL)),-lutf8proc) \
  $(if $(filter SENTENCEPIECE,$(OPTIONAL)),-lsentencepiece_train -lsentencepiece) -lz $(if $(filter 1,$(PORTABLE)),,-lfmt) \
  $(if $(CUDA_ROOT),-L$(CUDA_ROOT)/lib64 -lcublas $(if $(filter 1,$(PORTABLE)),-lcudart_static -ldl -lrt -lpthread,-Xlinker -rpath -Xlinker $(CUDA_ROOT)/lib64 -lcudart -ldl) $(if $(WITH_NCCL),-lnccl)) \
  $(filter -L% -l% -Wl%,$(MPI_SAYS))
# A carried program looks for libraries beside itself first.
CARRIED := $(if $(filter 1,$(PORTABLE)),-Wl$(COMMA)-rpath$(COMMA)'$$ORIGIN/lib:/usr/local/cuda/lib64')
LINK = $(CXX) $(ALL_CXXFLAGS) -Wl,--as-needed $(CARRIED) $(LDFLAGS) $^ $(LIBS) $(LDLIBS) -o $@

# ---- sources (a new file needs no edit) ----------------------------------------------------------
DIRS     := tensor autograd attention nn data train
B        := build/$(MODE)-$(if $(SIMULATED),simulated,$(if $(WITH_CUDA),cuda,cpu))$(if $(filter 1,$(PORTABLE)),-portable)
find      = $(sort $(shell find $(1) -name '$(2)'))# files below folders, by a pattern
CPU_SRC  := $(filter-out train/main.cpp train/python/%,$(call find,$(DIRS),*.cpp))
CUDA_SRC := $(if $(WITH_CUDA),$(call find,$(DIRS),*.kernel.cpp) $(call find,$(DIRS),*.cu))
SIM_SRC  := $(wildcard tests/cuda_simulator/*.cpp)
TEST_SRC := $(filter-out $(SIM_SRC) tests/fuzz/% tests/install_example/%,$(call find,tests,*.cpp))
TOUR     := $(wildcard tests/tour/0*.cpp)# its pages
OBJ      := $(CPU_SRC:%=$B/%.o) $(CUDA_SRC:%=$B/%.cuda.o) $(if $(SIMULATED),$(SIM_SRC:%=$B/%.o))
TEST_OBJ := $(TEST_SRC:%=$B/%.o) $(if $(WITH_CUDA),$(patsubst %,$B/%.cuda.o,$(call find,tests,*.cu)))
# The pages need the engine and the methods, no data and no training.
TOUR_OBJ := $(filter $B/tests/tour/%.cuda.o,$(TEST_OBJ)) $(patsubst %,$B/%.o,$(TOUR) tests/main.cpp tests/support/close.cpp tests/support/devices.cpp) \
  $(filter-out $B/data/% $B/train/%,$(OBJ))

.PHONY: all
all: build/skytape build/libskytape.a ## build what this machine can build

# Loops over numbers stand where the name says so or is here, and in data/: they get all of the
# optimiser. What calls them or reads text, and the tests, compile in half the time without, and what
# runs a few times a run, or in a step only says what is to be computed, a tenth faster without any.
LOOPS := %.kernel.cpp %_cpu.cpp tensor/random/% tensor/gemm/linear_algebra.cpp attention/sampling/sampling.cpp \
  attention/selection/informer_rows.cpp data/tasks/listops.cpp tests/cuda_simulator/%
RUN_ONCE := $(addprefix data/,prepare.cpp tasks/build.cpp tasks/corpus.cpp tasks/own.cpp tasks/retrieval.cpp \
  cache/cache_set.cpp files/fetch.cpp files/json.cpp files/source.cpp tokenisers/sentencepiece.cpp)
CALLERS := $(filter train/% tests/% attention/% autograd/% nn/% tensor/% data/tasks/% data/own/% data/tokenisers/% data/unicode/% $(RUN_ONCE), \
  $(filter-out $(LOOPS),$(CPU_SRC) $(TEST_SRC))) train/main.cpp
$(CALLERS:%=$B/%.o): private OPTIMISE_release := -O1 -DNDEBUG
ONCE := $(filter-out train/studies/theory/% train/formats/safetensors.cpp, \
  $(filter train/% attention/methods/% attention/method.cpp attention/options.cpp attention/registry.cpp $(RUN_ONCE),$(CALLERS)))
$(ONCE:%=$B/%.o): private OPTIMISE_release := -O0 -DNDEBUG

# Headers that nearly all files read, parsed once for all files with the same flags. Each file still
# includes what it uses: `make check` reads it without these, so that a forgotten include shows.
COMMON_loops   := algorithm array cmath cstdint cstring functional limits memory numeric ostream span string \
  utility vector
COMMON_callers := $(COMMON_loops) chrono deque filesystem fstream map optional set sstream string_view tuple \
  variant fmt/format.h
COMMON_once    := $(COMMON_callers)
PRECOMPILED := $(addprefix $B/,loops.hpp.gch callers.hpp.gch once.hpp.gch)
$B/callers.hpp.gch: private OPTIMISE_release := -O1 -DNDEBUG
$B/once.hpp.gch: private OPTIMISE_release := -O0 -DNDEBUG
standard = -include $B/$(if $(filter $(ONCE),$<),once,$(if $(filter $(CALLERS),$<),callers,loops)).hpp

# ---- rules -----------------------------------------------------------------------------------
# Stamps that change only when their text does: other flags rebuild everything, another revision
# rebuilds the one file that prints it.
COMPILERS = $(CXX) $(ALL_CXXFLAGS) $(RACES)| $(NVCC) $(ALL_NVCCFLAGS)
stamp = mkdir -p $(@D); echo '$($(1))' | cmp -s - $@ || echo '$($(1))' > $@# of a variable
$B/flags: FORCE
	@$(call stamp,COMPILERS)
$B/revision: FORCE
	@$(call stamp,REVISION)
$(PRECOMPILED): $B/%.hpp.gch: $B/flags
	@mkdir -p $(@D); echo "  c++   $@"
	@printf '#include <%s>\n' $(COMMON_$*) > $(@:.gch=)
	@$(CXX) $(ALL_CXXFLAGS) -x c++-header $(@:.gch=) -o $@
	@$(if $(CCACHE),$(CXX) $(ALL_CXXFLAGS) -E -P $(@:.gch=) | sha256sum > $@.sum)
$B/%.cpp.o: %.cpp $B/flags $(PRECOMPILED)
	@mkdir -p $(@D); echo "  c++   $<"
	@$(CCACHE) $(CXX) $(ALL_CXXFLAGS) $(if $(CCACHE),-fpch-preprocess) $(standard) -MMD -MP -c $< -o $@
$B/%.cuda.o: % $B/flags
	@mkdir -p $(@D); echo "  $(if $(SIMULATED),cuda ,nvcc ) $<"
	@$(CUDA_COMPILE) -MMD -MP -c $< -o $@ $(if $(SIMULATED),,2>$@.ptxas || { cat $@.ptxas >&2; false; }; \
	  sed '/^ptxas info/d; /bytes stack frame/d' $@.ptxas >&2)
$B/libskytape.a: $(OBJ)
	@rm -f $@; ar rcs $@ $^
$B/skytape: $B/train/main.cpp.o $B/libskytape.a
	@echo "  link  $@"; $(LINK)
$B/skytape_tests: $(TEST_OBJ) $B/libskytape.a
	@echo "  link  $@"; $(LINK)
$B/skytape_tour: $(TOUR_OBJ)
	@echo "  link  $@"; $(LINK)
build/skytape: $B/skytape FORCE
	@ln -sfn $(B:build/%=%)/skytape $@
build/libskytape.a: $B/libskytape.a FORCE
	@ln -sfn $(B:build/%=%)/libskytape.a $@
$B/train/process/version.cpp.o: $B/revision
$B/train/process/version.cpp.o: private CPPFLAGS += -DSKYTAPE_REVISION='"$(REVISION)"'
USERS_OF_ONE := $(addprefix $B/data/,files/csv.cpp.o unicode/unicode.cpp.o tokenisers/sentencepiece.cpp.o)
OWN_DEFINES  := $(patsubst %,-DSKYTAPE_HAVE_%,$(filter $(OF_ONE_FILE),$(OPTIONAL)))
$(USERS_OF_ONE): build/dependencies.mk
$(USERS_OF_ONE): private CPPFLAGS += $(OWN_DEFINES)
# One test asks cuRAND's host library, which a carried program would have to bring along.
ifneq ($(and $(CUDA_ROOT),$(filter-out 1,$(PORTABLE))),)
$B/tests/tensor/random/random_test.cpp.o: private CPPFLAGS += -DSKYTAPE_HAVE_CURAND -isystem $(CUDA_ROOT)/include
$B/skytape_tests: private LIBS += -lcurand
endif
# Another has kernels of its own.
$B/tests/tensor/launch/cuda_simulator_test.cpp.o: private CXXFLAGS += $(RACES)
# One file has CUPTI's header, which a toolkit may keep apart.
$B/tensor/timing/kernel_times.cu.cuda.o: private NVCCFLAGS += $(if $(CUDA_ROOT),-I$(CUDA_ROOT)/extras/CUPTI/include)
# And one has MPI's header.
$B/mpi: FORCE
	@$(call stamp,MPI_FLAGS)
$B/train/ranks/mpi.cpp.o: $B/mpi
$B/train/ranks/mpi.cpp.o: private CPPFLAGS += $(MPI_FLAGS)
$B/train/ranks/device_sum.cu.cuda.o: private CPPFLAGS += $(if $(WITH_NCCL),-DSKYTAPE_HAVE_NCCL)
-include $(OBJ:.o=.d) $(TEST_OBJ:.o=.d) $B/train/main.cpp.d
FORCE:

# ---- programs --------------------------------------------------------------------------------
# Variables a user sets, as flags of the program.
TASK ?= listops
quoted = '$(subst ','\'',$(1))'# for the shell: a name may have spaces
flag = $(if $($(1)),--$(2) $(call quoted,$($(1))))
RUN_FLAGS = $(call flag,ATTENTION,attention) $(call flag,RECIPE,recipe) $(call flag,DEVICE,device) \
  $(call flag,STEPS,steps) $(call flag,BUDGET,budget) $(call flag,SEED,seed) $(call flag,SEEDS,seeds) $(call flag,THREADS,threads) $(call flag,BATCH,batch) \
  $(call flag,LR,lr) $(call flag,FEATURES,features) $(call flag,PRECISION,precision) $(call flag,OUT,out) \
  $(if $(filter 1,$(RESUME)),--resume) $(if $(filter 1,$(FORCE)),--force) $(ARGS)
LRA_FLAGS = $(call flag,TASKS,tasks) $(call flag,ATTENTIONS,attentions) $(call flag,LR,lr) $(call flag,BATCH,batch) \
  $(call flag,SEED,seed) $(call flag,SEEDS,seeds) $(call flag,STEPS,steps) $(call flag,RECIPE,recipe) $(call flag,JOBS,jobs) \
  $(call flag,DEVICE,device) $(call flag,THREADS,threads) $(call flag,FEATURES,features) $(call flag,PRECISION,precision) \
  $(call flag,OUT,out) $(ARGS)

.PHONY: train lra data gradcheck goldens bench python wheel race approx spectrum theory cost stability report test gpu-check gpu-bundle gpu-static fuzz check format format-check readme readme-check tour install doctor help clean FORCE
train: all ## train a model: TASK=listops ATTENTION=skyformer RECIPE=skytape STEPS= LR= BUDGET=20m SEED= SEEDS=3 FROM= OUT= RESUME=1
	$(if $(FROM),build/skytape data --task $(TASK) $(call flag,FROM,from))
	build/skytape train --task $(TASK) $(RUN_FLAGS)
lra: all ## a grid of runs and its accuracy table: TASKS=listops,text ATTENTIONS=all STEPS= SEEDS=1 RECIPE= JOBS=1 LR=1e-3,1e-4 BATCH=64,128
	build/skytape lra $(LRA_FLAGS)
data: all ## prepare a task's data: TASK= FROM=folder-or-archive, or FETCH=1 URL=mirror; EXPORT=folder
	build/skytape data --task $(TASK) $(call flag,FROM,from) $(if $(filter 1,$(FETCH)),--fetch) $(call flag,URL,url) \
	  $(call flag,EXPORT,export) $(ARGS)
gradcheck: all ## check gradients of attention methods: ATTENTION=name|all
	build/skytape gradcheck --attention $(or $(ATTENTION),all) $(ARGS)
goldens: all ## compare with reference vectors: GOLDENS=folder
	build/skytape goldens --dir $(call quoted,$(or $(GOLDENS),tests/goldens)) $(ARGS)
bench: all ## time training steps: ATTENTION=all DEVICE= BATCH= FEATURES= ARGS="--n 2048"
	build/skytape bench --attention $(or $(ATTENTION),all) $(call flag,DEVICE,device) \
	  $(call flag,BATCH,batch) $(call flag,FEATURES,features) $(call flag,THREADS,threads) $(ARGS)
PYTHON ?= python3
python: ## the module `skytape` for Python, bound by nanobind (PyPI): PYTHON=
wheel: ## the same as a wheel for other machines, by auditwheel (PyPI): PYTHON= OUT=
$(if $(filter python wheel,$(MAKECMDGOALS)),$(eval include train/python/python.mk))
race: all ## training steps beside PyTorch, in alternation: PEER=torch_lra.py PYTHON= DEVICE=cpu PRECISION= BATCH= OUT=
	$(PYTHON) train/scripts/race.py --peer $(or $(PEER),$(error race: PEER=file says where torch_lra.py is)) \
	  $(call flag,DEVICE,device) $(call flag,PRECISION,precision) $(call flag,BATCH,batch) \
	  $(call flag,FEATURES,features) $(call flag,THREADS,threads) $(call flag,OUT,out) $(ARGS)

theory: all ## check the papers' statements with numbers: OUT= ARGS="--seeds 20"
	build/skytape theory $(call flag,OUT,out) $(ARGS)
cost: all ## parameters, operations, time and memory: ATTENTION=all RECIPE= DEVICE= OUT= ARGS="--tables length"
	build/skytape cost --attention $(or $(ATTENTION),all) $(call flag,RECIPE,recipe) $(call flag,DEVICE,device) \
	  $(call flag,BATCH,batch) $(call flag,FEATURES,features) $(call flag,PRECISION,precision) \
	  $(call flag,THREADS,threads) $(call flag,OUT,out) $(ARGS)
stability: all ## instability scores and exploding gradients: ATTENTION=all RECIPE= STEPS= SEED= DEVICE= OUT=
	build/skytape stability --attention $(or $(ATTENTION),all) $(call flag,RECIPE,recipe) $(call flag,STEPS,steps) \
	  $(call flag,SEED,seed) $(call flag,BATCH,batch) $(call flag,DEVICE,device) $(call flag,THREADS,threads) \
	  $(call flag,OUT,out) $(ARGS)
approx: all ## error of the approximations over features: ATTENTION=all FEATURES=8,16 RUN=folder OUT= ARGS="--n 512"
	build/skytape approx --attention $(or $(ATTENTION),all) $(STUDY_FLAGS)
spectrum: all ## singular values, statistical dimension, conditions: RUN=folder FEATURES=128 OUT= ARGS="--n 512"
	build/skytape spectrum $(STUDY_FLAGS)
report: all ## one HTML page about runs and studies: RUNS=runs OUT= WATCH=seconds
	build/skytape report $(call flag,RUNS,runs) $(call flag,OUT,out) $(call flag,WATCH,watch) $(ARGS)
STUDY_FLAGS = $(call flag,RUN,run) $(call flag,FEATURES,features) $(call flag,SEED,seed) \
  $(call flag,THREADS,threads) $(call flag,OUT,out) $(ARGS)

# ---- tests -----------------------------------------------------------------------------------
test: all $B/skytape_tests ## run every test that can run here
	+@B=$B train/scripts/test.sh $(ARGS)
tour: $B/skytape_tour ## seven tests to read from top to bottom, with their stories (tests/tour)
	@for page in $(TOUR); do \
	  printf '\n== %s ==\n%s\n\n' $$page "$$(sed -n '1s,^// ,,p' $$page)"; \
	  SKYTAPE_TOUR=1 OMP_WAIT_POLICY=passive $B/skytape_tour -m -sf="*/$${page##*/}"; \
	done
gpu-check: all $B/skytape_tests ## everything that only a GPU can show, with a report: CHECKS= METHODS= OUT= PEER= GOLDENS=
	@B=$B CHECKS='$(CHECKS)' METHODS='$(METHODS)' OUT='$(OUT)' PEER='$(PEER)' GOLDENS='$(GOLDENS)' train/scripts/gpu_check.sh
gpu-bundle: ## program, tests and data for a GPU machine without anything: OUT=build/gpu-bundle PEER= GOLDENS=
	+@MAKE='$(MAKE)' NVCC='$(NVCC)' OUT='$(OUT)' PEER='$(PEER)' GOLDENS='$(GOLDENS)' train/scripts/gpu_bundle.sh
gpu-static: $(CUDA_SRC:%=$B/%.cuda.o) ## registers, spills and occupancy of every kernel, without a GPU: OUT=
	@B=$B NVCC='$(NVCC)' OUT='$(OUT)' train/scripts/gpu_static.sh
FUZZ_SECONDS ?= 60
fuzz: ## run libFuzzer on every reader of files: FUZZ_SECONDS=60
	@SECONDS_EACH=$(FUZZ_SECONDS) train/scripts/fuzz.sh $(DEFINES) $(OWN_DEFINES) $(LIBS)
check: format-check ## formatting and clang-tidy
	@train/scripts/tidy.sh $(filter-out -mstore-max=%,$(ALL_CXXFLAGS))
FORMATTED = $(call find,$(DIRS) tests,*.[ch]pp) $(call find,$(DIRS) tests,*.cu) $(wildcard tests/cuda_simulator/*.h)
readme: all ## write the generated tables of the pages
	train/scripts/readme.sh
readme-check: all ## check the pages: tables current, short enough, what they name exists
	train/scripts/readme.sh --check
format: ## format all sources
	@clang-format -i $(FORMATTED)
format-check:
	@clang-format --dry-run -Werror $(FORMATTED)

# ---- help ------------------------------------------------------------------------------------
PREFIX ?= /usr/local
install: all ## install program, library and headers: PREFIX=/usr/local
	install -D $B/skytape $(DESTDIR)$(PREFIX)/bin/skytape
	install -D -m 644 $B/libskytape.a $(DESTDIR)$(PREFIX)/lib/libskytape.a
	for h in $(filter-out train/python/%,$(call find,$(DIRS),*.hpp)) $(call find,$(DIRS),*.def); do install -D -m 644 $$h $(DESTDIR)$(PREFIX)/include/skytape/$$h; done
	mkdir -p $(DESTDIR)$(PREFIX)/lib/pkgconfig
	printf '%s\n' 'Name: skytape' 'Description: tensors, gradients and attention methods' 'Version: 1' \
	  'Cflags: -std=c++20 -fopenmp -I$(PREFIX)/include/skytape $(DEFINES)' \
	  'Libs: -L$(PREFIX)/lib -lskytape -fopenmp $(strip $(LIBS))' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/skytape.pc
	mkdir -p $(DESTDIR)$(PREFIX)/lib/cmake/skytape
	{ printf 'set(_skytape_%s "%s")\n' definitions '$(subst $(SPACE),;,$(strip $(DEFINES)))' \
	  libraries '$(subst $(SPACE),;,$(subst -Xlinker -rpath -Xlinker ,-Wl$(COMMA)-rpath$(COMMA),$(strip $(LIBS))))'; cat train/scripts/skytape-config.cmake; } \
	  > $(DESTDIR)$(PREFIX)/lib/cmake/skytape/skytape-config.cmake
doctor: ## say what this machine has, what is missing and what to install
	@CXX='$(CXX)' CPPFLAGS='$(CPPFLAGS)' NVCC='$(NVCC)' MPICC='$(MPICC)' CUDA_HOME='$(CUDA_HOME)' train/scripts/dependencies.sh --report
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | awk -F '\t' '{printf "  make %-12s %s\n", $$1, $$2}'
clean: ## forget everything that was built
	rm -rf build
