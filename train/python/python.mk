# The Python module: `make python` builds it into build/python/skytape for the interpreter PYTHON,
# which needs Python.h, nanobind (PyPI), and Python 3.10 typing_extensions, too. Read by the Makefile
# for these goals alone.
PY        := "$(PYTHON)"# its path may have blanks
PY_SUFFIX := $(shell $(PY) -c 'import nanobind, os, sys, sysconfig; sys.version_info < (3, 11) and __import__("typing_extensions"); \
  os.stat(sysconfig.get_path("include") + "/Python.h"); print(sysconfig.get_config_var("EXT_SUFFIX"))')
$(if $(PY_SUFFIX),,$(error python: $(PYTHON) lacks what the line above names; to install it: apt-get install python3-dev python3-venv, \
  python3 -m venv venv && venv/bin/pip install nanobind typing_extensions, then PYTHON=venv/bin/python))
PY_ENGINE := _engine$(PY_SUFFIX)
P         := $B/python/$(PY_SUFFIX:.%=%)# its objects
PY_OBJ    := $(patsubst %,$P/%.o,$(wildcard train/python/*.cpp))

# Of which nanobind and Python the objects are: another one compiles them again. What lies there is reached
# by links, whose paths have no blanks.
$P/knows: FORCE
	@mkdir -p $(@D); $(PY) -c 'import nanobind, os, sysconfig; \
	  print(nanobind.__version__, os.path.dirname(nanobind.__file__), sysconfig.get_path("include"), sep="\n")' > $@.now
	@cmp -s $@.now $@ || { ln -sfn "$$(sed -n 2p $@.now)" $P/nanobind; ln -sfn "$$(sed -n 3p $@.now)" $P/include; cp $@.now $@; }
# ccache knows headers by the paths behind the links: the version, which this file has, tells it of
# another nanobind behind the same links.
OF_NANOBIND = CCACHE_EXTRAFILES=$P/nanobind/__init__.py $(CCACHE)
# nanobind's types must not be seen outside, and its headers break our warnings.
PY_FLAGS = $(ALL_CXXFLAGS) -O1 -fvisibility=hidden -fno-strict-aliasing -isystem $P/nanobind/include \
  -isystem $P/nanobind/ext/robin_map/include -isystem $P/include -DNB_COMPACT_ASSERTIONS
$P/%.cpp.o: %.cpp $B/flags train/python/python.mk $P/knows
	@mkdir -p $(@D); echo "  c++   $<"
	@$(OF_NANOBIND) $(CXX) $(PY_FLAGS) -I $P -MMD -MP -c $< -o $@
$P/nanobind.o: $B/flags train/python/python.mk $P/knows
	@mkdir -p $(@D); echo "  c++   nanobind"
	@$(OF_NANOBIND) $(CXX) $(filter-out -W%,$(PY_FLAGS)) -c $P/nanobind/src/nb_combined.cpp -o $@
# The operations of the tape, as their header declares them.
$P/ops.inc: train/python/bind_ops.py autograd/ops.hpp
	@mkdir -p $(@D); $(PY) $^ > $@
$P/train/python/tape.cpp.o: $P/ops.inc
$P/$(PY_ENGINE): $(PY_OBJ) $P/nanobind.o $B/libskytape-lab.a $B/libskytape.a
	@echo "  link  $@"
	@$(LINK) -shared -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,-s
-include $(PY_OBJ:.o=.d)

# The stubs, for editors and mypy, are read from the engine alone: once the package is imported, tape.py
# has changed the engine's classes.
python: $P/$(PY_ENGINE)
	@mkdir -p build/python; rm -rf build/python/skytape; cp -r train/python/skytape build/python/; cp $< build/python/skytape/
	@echo '__version__ = "$(VERSION)"' > build/python/skytape/version.py
	@mkdir -p $P/bare/skytape; touch $P/bare/skytape/__init__.py; cp $< $P/bare/skytape/
	@PYTHONPATH="$P/bare$${PYTHONPATH:+:$$PYTHONPATH}" $(PY) -m nanobind.stubgen -q -m skytape._engine -p train/python/stubs.pat -O build/python/skytape -r
	@echo "build/python has the module: PYTHONPATH=build/python $(PY) -c 'import skytape'"
# For other machines: x86-64-v3, with the libraries it needs inside. WHEEL= gives its build other options.
wheel:
	SKYTAPE_MAKE="$(or $(WHEEL),PORTABLE=1 MPI=0)" $(PY) -m pip wheel -q --no-deps -w $P/wheel train/python
	PATH="$$(dirname $(PY)):$$PATH" $(PY) -m auditwheel repair -w "$(or $(OUT),build/python)" $P/wheel/skytape-*.whl
