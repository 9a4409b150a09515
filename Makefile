# skytape: `make help` lists the targets, `make doctor` says what this machine can build.

# ---- options ---------------------------------------------------------------------------------
MODE      ?= release# release | debug | asan | fuzz (clang++)
# CUDA: auto: where nvcc and a GPU are; 1: always; 0: never; simulated: GPU code on the CPU, for tests
CUDA      ?= $(if $(filter gpu-%,$(MAKECMDGOALS)),1,auto)
MPI       ?= auto# several ranks. auto: where mpicc is; 1: always; 0: never
# Compute capabilities. PTX of the last one is added unless its name ends in -real, as in 90-real.
# 90a-real has wgmma, too (tensor/gemm/warpgroup.hpp).
CUDA_ARCH ?= 80 90
PORTABLE  ?= 0# 1: x86-64-v3 portable binary, with lib/ next to it; 0: for this machine
DNNL      ?= 1# 0: products by Eigen, where oneDNN is installed, too
WERROR    ?= 0# 1: warnings are errors (CI)
known      = $(if $(filter $2,$($1)),,$(error $1=$($1) (from the $(origin $1)): expected one of: $2))
$(call known,MODE,release debug asan fuzz)$(call known,CUDA,auto 0 1 simulated)$(call known,MPI,auto 0 1)
$(foreach option,PORTABLE DNNL WERROR,$(call known,$(option),0 1))

# ---- tools -----------------------------------------------------------------------------------
SHELL     := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
# As many compilers as cores; a -j that you give wins. Several goals keep their order.
MAKEFLAGS += --no-builtin-rules $(if $(filter 0,$(MAKELEVEL)$(word 2,$(MAKECMDGOALS))),-j$(shell nproc))
PYTHON    ?= python3
CLANG_FORMAT ?= $(or $(shell command -v clang-format-14),clang-format)
MPICC     ?= $(shell command -v mpicc 2>/dev/null)
CUDA_HOME ?= /usr/local/cuda
NVCC      ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard $(CUDA_HOME)/bin/nvcc))
# With ccache, sources that were compiled once in any checkout are not compiled again.
CCACHE    ?= $(shell command -v ccache 2>/dev/null)
export CCACHE_SLOPPINESS := pch_defines,time_macros
export CCACHE_NOHASHDIR  := 1
export CCACHE_PCH_EXTSUM := 1# a precompiled header is known by its text, not by its bytes
export B CXX CPPFLAGS MPICC NVCC PYTHON# scripts read them, and what is set on make's command line
HAS_GPU    = $(if $(NVCC),$(shell nvidia-smi -L >/dev/null 2>&1 && echo 1))
WITH_CUDA := $(if $(filter auto,$(CUDA)),$(HAS_GPU),$(filter 1 simulated,$(CUDA)))
SIMULATED := $(filter simulated,$(WITH_CUDA))# tests/cuda_simulator stands in for nvcc, cuBLAS and the GPU
NVCC_FILE := $(shell command -v $(NVCC))# NVCC may be a name without a folder
CUDA_ROOT := $(if $(filter 1,$(WITH_CUDA)),$(abspath $(dir $(realpath $(NVCC_FILE)))..))
# Not /usr/include of Debian's nvcc: named by -isystem, it would come before the C++ library's headers.
CUDA_INCLUDE := $(addsuffix /include,$(filter-out /usr,$(CUDA_ROOT)))
WITH_NCCL := $(if $(CUDA_ROOT),$(firstword $(wildcard $(CUDA_ROOT)/include/nccl.h /usr/include/nccl.h)))
# MPI is never installed from here; its compiler says what it adds.
MPI_SAYS  := $(if $(and $(filter 1 auto,$(MPI)),$(MPICC)),$(shell $(MPICC) -show))
# The installed libraries, written by a script that installs missing ones where it may, and written
# anew where the compiler finds others.
ifneq ($(filter-out help doctor clean format format-check,$(or $(MAKECMDGOALS),all)),)
include build/dependencies.mk
$(if $(filter 1,$(MPI)),$(if $(MPICC),,$(error MPI=1: no mpicc here; to install it: apt-get install libopenmpi-dev openmpi-bin)))
$(if $(filter 1,$(WITH_CUDA)),$(if $(NVCC_FILE),,$(error CUDA=$(CUDA): no nvcc here, NVCC is '$(NVCC)'; \
  expected that of a CUDA toolkit, by NVCC=, CUDA_HOME= or the PATH)))
endif
build/dependencies.mk: train/scripts/dependencies.sh build/found
	@$< --install > $@
build/found: FORCE ; @$(call stamp,train/scripts/dependencies.sh --found)

# ---- flags -----------------------------------------------------------------------------------
# In a release, loops over numbers, in files whose names say so, get all of the optimiser, and the
# engine round them and tokenisers get some of it. What calls these gets least: optimising it took
# half of the first build's time. All but the loops round each product, so that no bit depends on
# what is inlined. Tests run once, under sanitizers without an optimiser.
LOOPS   := %.kernel.cpp %_cpu.cpp %.cu data/pathfinder/% tests/cuda_simulator/%
CALLERS := tests/% train/% data/files/% data/custom/% data/tasks/% attention/methods/%
# Callers that read or write JSON: its header takes half a second.
JSON    := $(shell grep -rl Json --include=*.cpp data train tests)
KIND     = $(if $(filter $(LOOPS),$<),loops,$(if $(filter $(CALLERS),$<),$(if $(filter $(JSON),$<),json,callers),engine))
SANITIZERS := -g1 -D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPTIMISE_release_loops   := -O3 -DNDEBUG
OPTIMISE_release_engine  := -O1 -ffp-contract=off -DNDEBUG
OPTIMISE_release_callers := -Og -ffp-contract=off -DNDEBUG
OPTIMISE_asan            := -O1 $(SANITIZERS)
OPTIMISE_asan_callers    := -O0 $(SANITIZERS)
OPTIMISE_debug           := -O0 -g
OPTIMISE_fuzz            := -O1 $(SANITIZERS) -fsanitize=fuzzer-no-link
OPTIMISE = $(or $(OPTIMISE_$(MODE)_$(KIND:json=callers)),$(OPTIMISE_$(MODE)))
# -mstore-max: by registers of 512 bits g++ 12 stored wrong constants (tests/tour/04_method.cpp saw it).
TARGET_0 := -march=native -mprefer-vector-width=512
TARGET_1 := -march=x86-64-v3
TARGET   := $(if $(filter x86_64,$(shell uname -m)),$(TARGET_$(PORTABLE))) \
  $(if $(shell $(CXX) --help=target 2>/dev/null | grep -e -mstore-max),-mstore-max=128)
CLANG    := $(findstring clang,$(shell $(CXX) --version 2>/dev/null))
# g++ 12 gives the disabled warning about its own std::string (GCC bug 105651).
# clang knows not all of their names, and takes a function that templates alone call for an unused one.
WARNINGS := -Wall -Wextra -Wshadow -Wno-restrict \
  $(if $(CLANG),-Wno-unknown-warning-option -Wno-unneeded-internal-declaration) $(if $(filter 1,$(WERROR)),-Werror)
DEFINES  := $(patsubst %,-DSKYTAPE_HAVE_%,$(OPTIONAL)) $(if $(filter 1,$(PORTABLE)),-DFMT_HEADER_ONLY)
# Only sources that ask whether there is CUDA are told, so that ccache serves the others to both builds.
FOR_CUDA  := $(if $(WITH_CUDA),-DSKYTAPE_CUDA) $(if $(SIMULATED),-DSKYTAPE_CUDA_SIMULATED)
ASKING    := SKYTAPE_CUDA|"tensor/(core/on_device|launch/side_by_side).hpp"
ASKS_CUDA := $(if $(CUDA_ROOT),$(shell grep -rlE '$(ASKING)' --include=*.cpp . | sed 's,^./,,'),%)
# No -ffast-math: it deletes NaN tests. errno and trapping are what keeps libm calls from vectorising.
# Objects serve the program and, by -fPIC, the Python module. The compiler lives too shortly for its
# garbage collection to pay: without it the first build takes a twentieth less.
NO_COLLECTION := $(if $(CLANG),,--param ggc-min-heapsize=524288)
HEADER_FLAGS = -std=c++20 $(OPTIMISE) $(TARGET) \
  -fopenmp -fno-math-errno -fno-trapping-math -fPIC -fno-semantic-interposition \
  $(WARNINGS) $(NO_COLLECTION) $(if $(filter 1,$(PORTABLE)),-DFMT_HEADER_ONLY) $(CPPFLAGS) $(CXXFLAGS)
ALL_CXXFLAGS = $(HEADER_FLAGS) $(DEFINES) $(if $(filter $(ASKS_CUDA),$<),$(FOR_CUDA)) \
  -I. $(if $(SIMULATED),-Itests/cuda_simulator) $(EIGEN_FLAGS) $(OF_$<)
ALL_NVCCFLAGS = -std=c++20 -O3 $(if $(filter 0,$(PORTABLE)),-lineinfo) \
  $(foreach a,$(CUDA_ARCH:-real=),-gencode arch=compute_$a,code=sm_$a) \
  $(foreach a,$(filter-out %-real,$(lastword $(CUDA_ARCH))),-gencode arch=compute_$a,code=compute_$a) \
  --expt-relaxed-constexpr $(COMPRESS) -Xptxas -v -Xcompiler -fopenmp,-fPIC,-Wall \
  $(if $(filter 1,$(WERROR)),-Werror all-warnings) $(DEFINES) $(FOR_CUDA) \
  $(if $(filter 90a%,$(CUDA_ARCH)),-DSKYTAPE_SM90A) -I. $(OF_$<) $(CPPFLAGS) $(NVCCFLAGS)
# A portable program has a fifth of the machine code's size; nvcc knows how from CUDA 12.8 on.
COMPRESS := $(if $(and $(CUDA_ROOT),$(filter 1,$(PORTABLE))), \
  $(shell $(NVCC) --help | grep -q -e --compress-mode && echo --compress-mode=size))
# Each access of simulated kernels is watched for races, which address sanitizer does not allow.
RACES    := $(if $(SIMULATED),$(if $(filter asan,$(MODE)),,-fsanitize=thread))
# As nvcc does, the simulator defines __CUDACC__ and includes the runtime's header first.
SIMULATE     = $(CXX) $(ALL_CXXFLAGS) $(RACES) -D__CUDACC__ -include cuda_runtime.h -Wno-unknown-pragmas -x c++
CUDA_COMPILE = $(CCACHE) $(if $(SIMULATED),$(SIMULATE),$(NVCC) $(ALL_NVCCFLAGS) -x cu)
# Extra flags of single files: MPI's header, CUPTI's, which a toolkit may keep apart, cuRAND's,
# which a test needs and no portable program has, and races.
OF_train/ranks/mpi.cpp := $(if $(MPI_SAYS),-DSKYTAPE_HAVE_MPI -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX \
  $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_SAYS))))
OF_train/ranks/device_sum.cu := $(if $(WITH_NCCL),-DSKYTAPE_HAVE_NCCL)
NO_DNNL := $(if $(filter 0,$(DNNL)),-USKYTAPE_HAVE_DNNL)
$(foreach f,tensor/gemm/gemm_cpu.cpp tensor/gemm/gemm_bf16_cpu.cpp tests/attention/cost_test.cpp,$(eval OF_$f := $(NO_DNNL)))
REVISION := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
VERSION  := $(shell sed -n 's/^version: *//p' CITATION.cff)
OF_train/process/version.cpp := -DSKYTAPE_REVISION='"$(REVISION)"' -DSKYTAPE_VERSION='"$(VERSION)"' $(NO_DNNL)
OF_tensor/timing/kernel_times.cu := $(if $(CUDA_ROOT),-I$(CUDA_ROOT)/extras/CUPTI/include)
CURAND := $(if $(filter 0,$(PORTABLE)),$(CUDA_ROOT))
OF_tests/tensor/random/random_test.cpp := $(if $(CURAND),-DSKYTAPE_HAVE_CURAND $(addprefix -isystem ,$(CUDA_INCLUDE)))
OF_tests/tensor/launch/cuda_simulator_test.cpp := $(RACES)
# A portable program contains most of CUDA and looks for libraries in its own folder first.
CUDA_LIBS_0 := -Wl,-rpath,$(CUDA_ROOT)/lib64 -lcudart -ldl
CUDA_LIBS_1 := -lcudart_static -ldl -lrt -lpthread
CARRIED_1   := -Wl,-rpath,'$$ORIGIN/lib:/usr/local/cuda/lib64'
LIBS := $(foreach o,$(OPTIONAL),$(LIB_$o)) -lz -lcrypto $(if $(filter 0,$(PORTABLE)),-lfmt) \
  $(if $(CUDA_ROOT),-L$(CUDA_ROOT)/lib64 -lcublas $(CUDA_LIBS_$(PORTABLE))) $(if $(WITH_NCCL),-lnccl) \
  $(filter -L% -l% -Wl%,$(MPI_SAYS))
LINK = $(CXX) $(ALL_CXXFLAGS) -Wl,--as-needed $(CARRIED_$(PORTABLE)) $(LDFLAGS) $(filter %.o %.a,$^) $(LIBS) $(LDLIBS) -o $@

# ---- sources (a new file needs no edit) ------------------------------------------------------
ENGINE   := tensor autograd attention nn
DIRS     := $(ENGINE) data train
B        := build/$(MODE)-$(if $(SIMULATED),simulated,$(if $(WITH_CUDA),cuda,cpu))$(if $(filter 1,$(PORTABLE)),-portable)
find      = $(sort $(shell find $(1) -name '$(2)' ! -name '.*'))# editors keep files such as .#add.cpp
CPU_SRC  := $(filter-out train/main.cpp train/python/% train/lab/%,$(call find,$(DIRS),*.cpp))
LAB_SRC  := $(filter-out %/main.cpp,$(call find,train/lab,*.cpp))# the second program's own
CUDA_SRC := $(if $(WITH_CUDA),$(call find,$(DIRS),*.kernel.cpp) $(call find,$(DIRS),*.cu))
SIM_SRC  := $(wildcard tests/cuda_simulator/*.cpp)
TEST_SRC := $(filter-out $(SIM_SRC) tests/fuzz/% tests/install_example/% tests/exercises/%,$(call find,tests,*.cpp))
TOUR     := $(wildcard tests/tour/0*.cpp)# its pages
LAB_OBJ  := $(LAB_SRC:%=$B/%.o)
OBJ      := $(CPU_SRC:%=$B/%.o) $(CUDA_SRC:%=$B/%.cuda.o) $(if $(SIMULATED),$(SIM_SRC:%=$B/%.o))
TEST_CU  := $(if $(WITH_CUDA),$(filter-out tests/exercises/%,$(call find,tests,*.cu)))
TEST_OBJ := $(TEST_SRC:%=$B/%.o) $(TEST_CU:%=$B/%.cuda.o)
# An exercise is linked with its judge; what runs on the simulated device, with that and nothing else.
JUDGE     := $(patsubst %,$B/tests/exercises/%.cpp.o,judge judge_gradients)
DEVICE_OF_EXERCISES := $B/tests/exercises/judge.cpp.o $B/tensor/core/error.cpp.o \
  $(patsubst %,$B/tests/cuda_simulator/%.cpp.o,block cupti fiber memory races runtime streams tensor_core)
# The engine and the methods, without data and training: all that their tests and the tour's pages need.
ENGINE_OBJ  := $(filter-out $B/data/% $B/train/%,$(OBJ))
ENGINE_TEST := $(filter $(foreach room,$(ENGINE) support,$B/tests/$(room)/%) $B/tests/main.cpp.o,$(TEST_OBJ)) $(ENGINE_OBJ)
TOUR_OBJ := $(patsubst %,$B/%.o,$(TOUR) tests/main.cpp tests/support/close.cpp tests/support/devices.cpp) \
  $(filter $B/tests/tour/%.cuda.o,$(TEST_OBJ)) $(ENGINE_OBJ)
# Headers that nearly all files read, parsed once for all files of a kind. Each file still includes
# what it uses: `make check` reads it without these, so that a forgotten include shows.
COMMON  := algorithm array cmath cstdint cstring deque functional limits memory numeric ostream span string unordered_map utility vector
HEADERS_callers := filesystem map optional sstream variant fmt/format.h
HEADERS_json    := $(HEADERS_callers) data/files/json.hpp
# Nothing that depends on CUDA is in them, so that builds with and without CUDA share them, and by ccache
# all files whose text is the same in both.
PCH            := build/$(MODE)-headers$(if $(filter 1,$(PORTABLE)),-portable)
PRECOMPILED    := $(patsubst %,$(PCH)/%.hpp.gch,loops engine callers json)

# ---- rules -----------------------------------------------------------------------------------
all: build/skytape build/libskytape.a ## build what this machine can build
lab: all build/skytape-lab ## build the laboratory too: benchmarks, studies, grids of runs, goldens
# Stamps that change only when their text does: other flags rebuild everything, another revision or
# MPI the one file that reads it, and other sources or libraries link again what is linked.
KINDS     = $(foreach k,loops callers,$(OPTIMISE_$(MODE)_$k))
COMPILERS = $(CXX) $(ALL_CXXFLAGS) $(RACES) $(KINDS) $(OPTIONAL) $(FOR_CUDA) $(DNNL) | $(NVCC) $(ALL_NVCCFLAGS)
stamp = mkdir -p $(@D); $(1) > $@.now; cmp -s $@.now $@ || cp $@.now $@
$B/flags: FORCE ; @$(call stamp,echo '$(COMPILERS)')
$B/revision: FORCE ; @$(call stamp,echo '$(REVISION)')
$B/mpi: FORCE ; @$(call stamp,echo '$(MPI_SAYS)')
$B/linked: FORCE ; @$(call stamp,echo $(call quoted,$(CPU_SRC) $(CUDA_SRC) $(LAB_SRC) $(TEST_SRC) $(LDFLAGS) $(LIBS) $(LDLIBS)))
$(PCH)/flags: FORCE ; @$(call stamp,echo '$(CXX) $(HEADER_FLAGS) $(KINDS)')
build/recipes: FORCE ; @$(call stamp,echo $(RECIPES))
$(PRECOMPILED): private KIND = $*
$(PCH)/json.hpp.gch: data/files/json.hpp
$(PRECOMPILED): $(PCH)/%.hpp.gch: $(PCH)/flags
	@mkdir -p $(@D); echo "  c++   $@"; printf '#include <%s>\n' $(COMMON) $(HEADERS_$*) > $(PCH)/$*.hpp
	@$(CXX) $(HEADER_FLAGS) -I. -x c++-header $(PCH)/$*.hpp -o $@
	@$(if $(CCACHE),$(CXX) $(HEADER_FLAGS) -I. -E -P $(PCH)/$*.hpp | sha256sum > $@.sum)
$B/%.cpp.o: %.cpp $B/flags | $(PRECOMPILED)
	@mkdir -p $(@D); echo "  c++   $<"
	@$(CCACHE) $(CXX) $(ALL_CXXFLAGS) $(if $(CCACHE),$(if $(CLANG),,-fpch-preprocess)) -include $(PCH)/$(KIND).hpp -MMD -MP -c $< -o $@
$(JSON:%=$B/%.o): $(PCH)/json.hpp.gch# for data/files/json.hpp, which -MMD does not see in there
$B/%.cuda.o: % $B/flags
	@mkdir -p $(@D); echo "  $(if $(SIMULATED),cuda ,nvcc ) $<"
	@$(CUDA_COMPILE) -MMD -MP -c $< -o $@ $(if $(SIMULATED),,2>$@.ptxas || { cat $@.ptxas >&2; false; }; \
	  sed '/C75[0-9][0-9]/b; /^ptxas info/d; /bytes stack frame/d' $@.ptxas >&2)
# Recipes are compiled into the program, so that it runs from anywhere.
RECIPES := $(sort $(wildcard train/config/recipes/*.recipe))
build/recipes.inc: $(RECIPES) build/recipes
	@for f in $(RECIPES); do printf '{"%s", R"recipe(' $$(basename $$f .recipe); cat $$f; echo ')recipe"},'; done > $@.now; mv $@.now $@
$B/train/config/recipes.cpp.o: build/recipes.inc
$B/train/process/version.cpp.o: $B/revision CITATION.cff
$B/train/ranks/mpi.cpp.o: $B/mpi
$B/libskytape.a: $(OBJ)
$B/libskytape-lab.a: $(LAB_OBJ)
$B/libskytape.a $B/libskytape-lab.a $B/readers.a: $B/linked
	@rm -f $@; ar rcs $@ $(filter %.o,$^)
$B/skytape: $B/train/main.cpp.o $B/libskytape.a
$B/skytape-lab: $B/train/lab/main.cpp.o $B/libskytape-lab.a $B/libskytape.a
$B/skytape_tests: $(TEST_OBJ) $B/libskytape-lab.a $B/libskytape.a
$B/skytape_engine_tests: $(ENGINE_TEST)
$B/skytape_tests $B/skytape_engine_tests: private LIBS += $(if $(CURAND),-lcurand)
$B/skytape_tour: $(TOUR_OBJ)
# The objects that readers call, as an archive: what they do not call needs no engine.
$B/readers.a: $(patsubst %,$B/%.o,$(filter data/% train/formats/% tensor/core/%,$(filter-out %.kernel.cpp,$(CPU_SRC))))
$B/readers: $B/tests/fuzz/data/readers.cpp.o $B/readers.a
$B/readers: private LDFLAGS += -fsanitize=fuzzer
$B/skytape $B/skytape-lab $B/skytape_tests $B/skytape_engine_tests $B/skytape_tour $B/readers: $B/linked
	@echo "  link  $@"; $(LINK)
build/skytape build/skytape-lab build/libskytape.a: build/%: $B/% FORCE
	@ln -sfn $(B:build/%=%)/$* $@
-include $(patsubst %.o,%.d,$(OBJ) $(LAB_OBJ) $(TEST_OBJ) $(JUDGE) $(DEVICE_OF_EXERCISES)) \
  $B/train/main.cpp.d $B/train/lab/main.cpp.d
FORCE:

# ---- programs --------------------------------------------------------------------------------
# A user's variables become flags of the program, SEED=7 for example --seed '7'; the program knows
# which of them a subcommand has.
FLAGS  := TASK TASKS ATTENTION ATTENTIONS RECIPE DEVICE STEPS BUDGET SEED SEEDS THREADS BATCH LR FEATURES \
  PRECISION JOBS RUN RUNS WATCH FROM URL EXPORT PACK OUT
quoted  = '$(subst ','\'',$(1))'# for the shell: a name may have spaces
flags   = $(foreach v,$(1),$(if $($v),--$(shell tr A-Z a-z <<<$v) $(call quoted,$($v)))) $(ARGS)
switch  = $(if $($(1)),$(call known,$(1),0 1))$(if $(filter 1,$($(1))),--$(2))
# A misspelt variable would leave its setting as it is, and train another model for an hour.
TYPED    = $(foreach set,$(subst \ ,,$(MAKEOVERRIDES)),$(firstword $(subst =, ,$(subst :=,=,$(set)))))
READ     = $(shell [[ '$v' =~ ^[A-Z_]+$$ ]] && grep -rlsw '$v' Makefile train/scripts train/python/python.mk)
MISSPELT = $(foreach v,$(TYPED),$(if $(READ),,$v))
READERS := train data lra arena gradcheck goldens bench race theory cost stability approx spectrum report exercise
TESTERS := test engine-test tour exercise-check
ifneq ($(filter $(READERS) $(TESTERS),$(MAKECMDGOALS)),)
$(foreach v,$(MISSPELT),$(error $v=$($v): no variable of this Makefile; `make help` names those of each target))
# Nor would one that only other targets read.
OF_RUNS := $(sort $(FLAGS) SET WITHOUT FETCH FORCE RESUME GOLDENS PEER N HINT LINE)
READS    = $(if $(filter $(TESTERS),$1),,$(or $(READS_$1),$(FLAGS))) $(if $(filter $(NO_ARGS),$1),,ARGS)
NO_ARGS := tour exercise exercise-check
READS_train    := $(FLAGS) FORCE RESUME
READS_data     := $(FLAGS) FORCE FETCH
READS_lra      := $(FLAGS) WITHOUT
READS_arena    := $(FLAGS) WITHOUT SET
READS_goldens  := GOLDENS DEVICE
READS_report   := RUNS WATCH OUT
READS_race     := $(FLAGS) PEER
READS_exercise := N HINT LINE
GIVEN := $(foreach v,$(OF_RUNS) ARGS,$(if $(filter command%,$(origin $v)),$v))
UNREAD := $(filter-out $(foreach g,$(MAKECMDGOALS),$(call READS,$g)),$(GIVEN))
$(foreach v,$(UNREAD),$(error $v=$($v): make $(MAKECMDGOALS) does not read it$(if \
  $(filter SET,$v),; ARGS="--set $(SET)" does what it seems to mean)))
# An unset variable of a shell leaves an empty one. `make arena BUDGET=` means the recipes' steps.
$(foreach v,$(filter-out ARGS $(if $(filter arena,$(MAKECMDGOALS)),BUDGET),$(GIVEN)), \
  $(if $($v),,$(error $v=: expected a value)))
endif
data: TASK ?= listops
gradcheck bench cost stability approx: ATTENTION ?= all
arena: ATTENTIONS ?= skyformer
# Ten minutes a task show what one method reaches. Several methods are compared at the recipe's steps.
arena: BUDGET ?= $(if $(STEPS)$(filter-out skyformer,$(ATTENTIONS)),,10m)
arena: OUT ?= runs/arena$(if $(filter 1,$(WITHOUT)),-without)

.PHONY: $(READERS) all lab python wheel test engine-test tour exercise-check gpu-check gpu-bundle fuzz \
  compile_commands check format format-check readme readme-check install doctor help clean FORCE
train: all ## train a model: TASK=listops ATTENTION=skyformer RECIPE=skytape (the defaults); e.g. BUDGET=20m SEEDS=3 STEPS= LR= SEED= BATCH= THREADS= FROM= OUT= RESUME=1 FORCE=1
	$(if $(FROM),build/skytape data --task $(or $(TASK),listops) --from $(call quoted,$(FROM)) $(call switch,FORCE,force))
	build/skytape train $(call switch,RESUME,resume) $(call switch,FORCE,force) $(call flags,$(filter-out FROM,$(FLAGS)))
data: all ## prepare a task's data: TASK= FROM=folder-or-archive, or FETCH=1 URL=mirror; EXPORT=folder FORCE=1
	build/skytape data $(call switch,FETCH,fetch) $(call switch,FORCE,force) $(call flags,$(FLAGS))
goldens: lab ## compare with reference vectors: GOLDENS=folder DEVICE=
	build/skytape-lab goldens --dir $(call quoted,$(or $(GOLDENS),tests/goldens)) $(call flags,DEVICE)
lra: lab ## a grid of runs and its accuracy table: TASKS=listops,text ATTENTIONS=all STEPS= SEEDS=1 RECIPE= JOBS=1 LR=1e-3,1e-4 BATCH=64,128 WITHOUT=1
gradcheck: all ## check gradients of attention methods: ATTENTION=name|all
bench: lab ## time training steps: ATTENTION=all DEVICE= BATCH= FEATURES= ARGS="--n 2048"
theory: lab ## check the papers' statements with numbers: OUT= ARGS="--seeds 20"
cost: lab ## parameters, operations, time and memory: ATTENTION=all RECIPE= DEVICE= OUT= ARGS="--tables length"
stability: lab ## instability scores and exploding gradients: ATTENTION=all RECIPE= STEPS= SEED= DEVICE= OUT=
approx: lab ## error of the approximations over features: ATTENTION=all FEATURES=8,16 RUN=folder OUT= ARGS="--n 512"
spectrum: lab ## singular values, statistical dimension, conditions: RUN=folder FEATURES=128 OUT= ARGS="--n 512"
arena: lab ## every task by recipe skytape, its tables and page: ATTENTIONS=skyformer|all TASKS= SEEDS=1 BUDGET=10m JOBS=1 OUT=runs/arena PACK=file.tar.gz SET="key=value" WITHOUT=1
	status=0; build/skytape-lab lra $(call flags,$(FLAGS)) $(call switch,WITHOUT,without-additions) $(addprefix --set ,$(SET)) || status=$$?; \
	"$(PYTHON)" train/report/page.py --runs $(call quoted,$(OUT)); exit $$status
report: lab ## one HTML page about runs and studies, by matplotlib: RUNS=runs OUT= WATCH=seconds PYTHON=
	"$(PYTHON)" train/report/page.py --runs $(call quoted,$(or $(RUNS),runs)) $(call flags,WATCH OUT)
gradcheck:
	build/skytape $@ $(call flags,$(FLAGS))
lra:
	build/skytape-lab lra $(call flags,$(FLAGS)) $(call switch,WITHOUT,without-additions)
bench theory:
	build/skytape-lab $@ $(call flags,$(FLAGS))
# A study is whole without pictures: exit code 3 says that there is no matplotlib, as draw.py has told.
cost stability approx spectrum:
	build/skytape-lab $@ $(call flags,$(FLAGS))
	@[ ! -d $(drawn) ] || "$(PYTHON)" train/report/draw.py $(drawn) || [ $$? -eq 3 ]
drawn = $(call quoted,$(or $(OUT),runs/$@))
race: lab ## benchmark: training steps of skytape and PyTorch in alternation: PYTHON= DEVICE=cpu PRECISION= BATCH= OUT= PEER=other-baseline.py
	"$(PYTHON)" train/lab/baseline/race.py $(call flags,PEER $(FLAGS))
python: ## the module `skytape` for Python, bound by nanobind (PyPI): PYTHON=
wheel: ## the same as a wheel for other machines, by auditwheel (PyPI): PYTHON= OUT=
$(if $(filter python wheel,$(MAKECMDGOALS)),$(eval include train/python/python.mk))

# ---- tests -----------------------------------------------------------------------------------
# Scripts that call make are marked by +, for its jobs; `make -n`, which would run them, too, prints them.
dry = $(if $(findstring n,$(firstword -$(MAKEFLAGS))),echo )
test: lab $B/skytape_tests ## run every test that can run here
	+@$(dry)train/scripts/test.sh skytape_tests $(ARGS)
engine-test: $B/skytape_engine_tests ## the tests of tensor/, autograd/, attention/ and nn/, half of the compiling
	+@$(dry)train/scripts/test.sh skytape_engine_tests $(ARGS)
tour: $B/skytape_tour ## eight pages that run, to read from top to bottom (tests/tour); page 7 without a GPU: CUDA=simulated
	@for page in $(TOUR); do \
	  printf '\n== %s ==\n%s\n\n' $$page "$$(sed -n '1s,^// ,,p' $$page)"; \
	  SKYTAPE_TOUR=1 OMP_WAIT_POLICY=passive $B/skytape_tour -m -sf="*/$${page##*/}"; \
	done
	@$(if $(WITH_CUDA),,echo "Page 7 needs a GPU, or a simulated one: make tour CUDA=simulated")
# What exercise N is linked with, by whether it is a kernel's.
NEEDED = $(if $(wildcard tests/exercises/$N_*.cu tests/exercises/broken/$N_*.cu),$(DEVICE_OF_EXERCISES),$(JUDGE) $B/libskytape.a)
exercise: $(if $N,$(NEEDED)) ## exercises with a judge (tests/exercises): N=4 HINT=1|2; a broken piece: N=b3 LINE=12
exercise-check: $(JUDGE) $B/libskytape.a $(DEVICE_OF_EXERCISES) ## holes fail, solutions pass, wrong answers are refused
exercise exercise-check: private KIND = callers
COMPILE_EXERCISE = $(CCACHE) $(CXX) $(filter-out -Werror,$(ALL_CXXFLAGS)) -Wno-unused-parameter \
  -include $(PCH)/callers.hpp $(if $(CCACHE),-fpch-preprocess)
exercise exercise-check:
	@COMPILE='$(COMPILE_EXERCISE)' \
	  RACES='$(if $(filter asan,$(MODE)),,-fsanitize=thread)' LIBRARY='$(JUDGE) $B/libskytape.a $(LIBS)' DEVICE='$(DEVICE_OF_EXERCISES)' \
	  HINT='$(HINT)' LINE='$(LINE)' train/scripts/exercise.sh $(if $(filter %-check,$@),--check,$(call quoted,$N))
gpu-check: lab $B/skytape_tests ## everything that only a GPU can show, packed as it goes: CHECKS= OUT= PEER= GOLDENS=
	@train/scripts/gpu_check.sh
gpu-bundle: ## program, tests and data for a GPU machine without anything: OUT=build/gpu-bundle GOLDENS=
	+@$(dry)env MAKE='$(MAKE)' train/scripts/gpu_bundle.sh
compile_commands: ## compile_commands.json, from which clangd knows how each file is compiled
	@$(MAKE) --no-print-directory -Bn CCACHE= $B/skytape $B/skytape_tests | awk -v dir=$(call quoted,$(CURDIR)) ' \
	  BEGIN { print "[" } \
	  match($$0, / -c [^ ]+\.cpp -o /) { \
	    file = substr($$0, RSTART + 4, RLENGTH - 8); \
	    gsub(/ (-include [^ ]+|-mstore-max=[0-9]+)/, ""); gsub(/["\\]/, "\\\\&"); \
	    printf "%s{\"directory\": \"%s\", \"file\": \"%s\", \"command\": \"%s\"}", n++ ? ",\n" : "", dir, file, $$0 } \
	  END { print "\n]" }' > compile_commands.json
fuzz: ## run libFuzzer on every reader of files: FUZZ_SECONDS=60
	@clang++ --version >/dev/null || \
	  { echo 'fuzz: no clang++ here; to install it: apt-get install clang libomp-dev libclang-rt-dev'; exit 1; }
	@$(MAKE) --no-print-directory MODE=fuzz CXX=clang++ CUDA=0 MPI=0 build/fuzz-cpu/readers
	@train/scripts/fuzz.sh build/fuzz-cpu/readers
check: format-check build/recipes.inc ## formatting and clang-tidy
	@train/scripts/tidy.sh $(ALL_CXXFLAGS) $(FOR_CUDA)
readme: lab ## write the generated tables of the pages
	train/scripts/readme.sh
readme-check: lab ## check the pages: tables current, what they name exists
	train/scripts/readme.sh --check
FORMATTED = $(call find,$(DIRS) tests,*.[ch]pp) $(call find,$(DIRS) tests,*.cu) $(wildcard tests/cuda_simulator/*.h)
# Each version breaks the lines of some files in its own way.
FORMATTER_SAYS = $(shell $(CLANG_FORMAT) --version 2>&1)
FORMATTER = $(if $(findstring version 14.,$(FORMATTER_SAYS)),$(CLANG_FORMAT),$(error $@: $(CLANG_FORMAT) says '$(FORMATTER_SAYS)'; expected version 14; \
  to install it: python3 -m venv venv && venv/bin/pip install clang-format==14.0.6, then CLANG_FORMAT=venv/bin/clang-format))
format: ## format all sources, by clang-format 14: CLANG_FORMAT=
	@$(FORMATTER) -i $(FORMATTED)
format-check:
	@$(FORMATTER) --dry-run -Werror $(FORMATTED)

# ---- help ------------------------------------------------------------------------------------
PREFIX ?= /usr/local
# Absolute, since skytape.pc names it.
INTO    = $(if $(filter /%,$(firstword $(PREFIX))),,$(CURDIR)/)$(PREFIX)
TO      = $(call quoted,$(DESTDIR)$(INTO))
install: lab ## install programs, library and headers: PREFIX=/usr/local
	install -D $B/skytape $(TO)/bin/skytape
	install -D $B/skytape-lab $(TO)/bin/skytape-lab
	install -D -m 644 $B/libskytape.a $(TO)/lib/libskytape.a
	for p in train/report/*.py; do install -D -m 644 $$p $(TO)/share/skytape/report/$${p##*/}; done
	install -D -m 644 train/scripts/skytape-config.cmake $(TO)/lib/cmake/skytape/skytape-config.cmake
	for h in $(filter-out train/python/% train/lab/%,$(call find,$(DIRS),*.hpp)) $(call find,$(DIRS),*.def); do \
	  install -D -m 644 $$h $(TO)/include/skytape/$$h; done
	install -d -m 755 $(TO)/lib/pkgconfig
	printf '%s\n' $(call quoted,prefix=$(INTO)) 'Name: skytape' 'Description: tensors, gradients and attention methods' 'Version: $(VERSION)' \
	  'Cflags: -std=c++20 -fopenmp "-I$${prefix}/include/skytape" $(DEFINES) $(FOR_CUDA)' \
	  'Libs: "-L$${prefix}/lib" -lskytape -fopenmp $(strip $(LIBS))' > $(TO)/lib/pkgconfig/skytape.pc
	chmod 644 $(TO)/lib/pkgconfig/skytape.pc
doctor: ## say what this machine has, what is missing and what to install
	@train/scripts/dependencies.sh --report
help: ## this list
	@sed -n 's/^\([a-z_-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | awk -F '\t' '{printf "  make %-12s %s\n", $$1, $$2}'
clean: ## forget everything that was built
	rm -rf build train/python/build train/python/*.egg-info
