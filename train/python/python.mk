# The Python module: `make python` builds it into build/python/skytape for the interpreter PYTHON,
# which needs nanobind (PyPI). Read by the Makefile for these goals alone.
PY_KNOWS := $(shell $(PYTHON) -c 'import nanobind, os, sysconfig; \
  print(os.path.dirname(nanobind.__file__), sysconfig.get_path("include"), sysconfig.get_config_var("EXT_SUFFIX"))')
$(if $(PY_KNOWS),,$(error python: $(PYTHON) has no nanobind; to install it: $(PYTHON) -m pip install nanobind))
NANOBIND  := $(word 1,$(PY_KNOWS))
PY_ENGINE := _engine$(word 3,$(PY_KNOWS))
P         := $B/python/$(word 3,$(PY_KNOWS:.%=%))# its objects
PY_OBJ    := $(patsubst %,$P/%.o,$(wildcard train/python/*.cpp))

# nanobind's types must not be seen outside, and its headers break our warnings.
PY_FLAGS = $(ALL_CXXFLAGS) -O1 -fvisibility=hidden -fno-strict-aliasing -isystem $(NANOBIND)/include \
  -isystem $(NANOBIND)/ext/robin_map/include -isystem $(word 2,$(PY_KNOWS)) -DNB_COMPACT_ASSERTIONS
$P/%.cpp.o: %.cpp $B/flags train/python/python.mk
	@mkdir -p $(@D); echo "  c++   $<"
	@$(CCACHE) $(CXX) $(PY_FLAGS) -I $P -MMD -MP -c $< -o $@
$P/nanobind.o: $(NANOBIND)/src/nb_combined.cpp
	@mkdir -p $(@D); echo "  c++   nanobind"
	@$(CCACHE) $(CXX) $(filter-out -W%,$(PY_FLAGS)) -c $< -o $@
# The operations of the tape, as their header declares them.
$P/ops.inc: train/python/bind_ops.py autograd/ops.hpp
	@mkdir -p $(@D); $(PYTHON) $^ > $@
$P/train/python/tape.cpp.o: $P/ops.inc
$P/$(PY_ENGINE): $(PY_OBJ) $P/nanobind.o $B/libskytape-lab.a $B/libskytape.a
	@echo "  link  $@"
	@$(LINK) -shared -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,-s
-include $(PY_OBJ:.o=.d)

python: $P/$(PY_ENGINE)
	@mkdir -p build/python; rm -rf build/python/skytape; cp -r train/python/skytape build/python/; cp $< build/python/skytape/
	@echo "build/python has the module: PYTHONPATH=build/python $(PYTHON) -c 'import skytape'"
# For other machines: x86-64-v3, with the libraries it needs inside.
wheel:
	SKYTAPE_MAKE="PORTABLE=1 MPI=0" $(PYTHON) -m pip wheel -q --no-deps -w $P/wheel train/python
	PATH="$(dir $(PYTHON)):$$PATH" $(PYTHON) -m auditwheel repair -w $(or $(OUT),build/python) $P/wheel/skytape-*.whl
