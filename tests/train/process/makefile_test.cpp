// The Makefile on a tree of a few empty sources, with a compiler that writes what it is asked for
// at once: which files it makes again, what it says of wrong options, how a target ends.
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::synthetic::Folder;
using data::synthetic::read_file;
using test::contains;

namespace {

namespace fs = std::filesystem;

// Looks for headers as the real compiler; each program that it links ends with status 5.
constexpr const char* kCompiler = R"(#!/bin/bash
case " $* " in *" -E "* | *" - "* | *" -print-"* | *" --"[hv]*) exec $REAL "$@" ;; esac
until [ "$1" = -o ]; do shift || exit 1; done
printf '#!/bin/sh\necho "$0 $@" >>ran\nexit 5\n' >"$2"
chmod +x "$2"
)";

struct Tree {
  Folder folder;

  Tree() {
    for (const char* part : {"Makefile", "CITATION.cff", "train/scripts"}) {
      fs::create_directories((folder.path() / part).parent_path());
      fs::copy(part, folder.path() / part, fs::copy_options::recursive);
    }
    for (const char* source :
         {"tensor/add.cpp", "autograd/tape.cpp", "attention/softmax.cpp", "nn/linear.cpp",
          "data/batch.cpp", "data/files/json.hpp", "train/main.cpp", "train/lab/main.cpp",
          "train/lab/race.cpp", "tests/main.cpp", "tests/add_test.cpp"}) {
      folder.write(source, "");
    }
    folder.write("train/config/recipes/large.recipe", "steps = 3\n");
    executable("compiler", kCompiler);
  }
  void executable(const std::string& name, const std::string& text) const {
    fs::permissions(folder.write(name, text), fs::perms::owner_all);
  }
  [[nodiscard]] bool has(const std::string& file) const { return fs::exists(folder.path() / file); }
  [[nodiscard]] std::string read(const std::string& file) const {
    return read_file(folder.path() / file);
  }

  /// Runs a command, which may begin with variables of the environment; returns what it said, and
  /// its exit status at the end.
  [[nodiscard]] std::string run(const std::string& words) const {
    const std::string command =
        "cd " + folder.path().string() +
        " && env -i PATH=\"$PATH\" REAL=\"${CXX:-g++}\" SKYTAPE_NO_INSTALL=1 "
        "CXX=./compiler CCACHE= CUDA=0 MPI=0 " +
        words + " 2>&1";
    FILE* const pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string said;
    char part[4096];
    while (std::fgets(part, sizeof part, pipe) != nullptr) said += part;
    return said + "exit status " + std::to_string(WEXITSTATUS(::pclose(pipe)));
  }
};

}  // namespace

TEST_CASE(
    "make builds with a library that was installed after the first build, and without a lost one") {
  const Tree tree;
  for (const char* header :
       {"fmt/format.h", "CLI/CLI.hpp", "nlohmann/json.hpp", "zlib.h", "openssl/evp.h",
        "doctest/doctest.h", "Random123/philox.h", "Eigen/Dense", "png.h"}) {
    tree.folder.write(std::string("include/") + header, "");
  }
  const std::string make = "make -s CPPFLAGS='-nostdinc -Iinclude' build/release-cpu/libskytape.a";
  CHECK(contains(tree.run(make), "building without libdnnl-dev"));
  CHECK(contains(tree.read("build/dependencies.mk"), "OPTIONAL := PNG\n"));
  const auto written = fs::last_write_time(tree.folder.path() / "build/dependencies.mk");
  CHECK(tree.run(make) == "exit status 0");
  const auto later = fs::last_write_time(tree.folder.path() / "build/dependencies.mk") - written;
  CHECK(later.count() == 0);
  tree.folder.write("include/curl/curl.h", "");
  fs::remove(tree.folder.path() / "include/png.h");
  CHECK(contains(tree.run(make), "c++   tensor/add.cpp"));  // its flags have changed
  CHECK(contains(tree.read("build/dependencies.mk"), "OPTIONAL := CURL\n"));
}

TEST_CASE("make arena draws its page although a run failed, and fails then") {
  const Tree tree;
  tree.executable("python", "#!/bin/sh\necho \"$@\" >>ran\n");
  const std::string said = tree.run("make arena PYTHON=./python");
  CAPTURE(said);
  CHECK(contains(said, "Error 5"));
  CHECK(contains(said, "exit status 2"));
  CHECK(contains(tree.read("ran"), "skytape-lab lra"));
  CHECK(contains(tree.read("ran"), "train/report/page.py --runs runs/arena"));
}

TEST_CASE("a CUDA compiler in /usr/bin adds no /usr/include, and its libraries are the linker's") {
  const Tree tree;
  tree.folder.write("tests/tensor/random/random_test.cpp", "");
  const std::string object = "build/release-cuda/tests/tensor/random/random_test.cpp.o";
  const auto compiled_by = [&](const std::string& nvcc) {
    return tree.run("make -n CUDA=1 NVCC=" + nvcc + " " + object);
  };
  tree.executable("cuda/bin/nvcc", "#!/bin/sh\n");
  const std::string of_cuda = " -isystem " + tree.folder.path().string() + "/cuda/include ";
  CHECK(contains(compiled_by(tree.folder.path() / "cuda/bin/nvcc"), of_cuda));
  const std::string by_name =
      tree.run("PATH=cuda/bin:\"$PATH\" make -n CUDA=1 NVCC=nvcc " + object);
  CHECK(contains(by_name, of_cuda));
  const std::string of_usr = compiled_by("/usr/bin/env");
  CHECK(contains(of_usr, " -DSKYTAPE_HAVE_CURAND "));
  CHECK_FALSE(contains(of_usr, "-isystem /usr/include "));
  tree.folder.write("linked/libcurand.so", "");
  CHECK(contains(tree.run("LIBRARY_PATH=linked make doctor NVCC=/usr/bin/env"),
                 " found      linked\n"));
}

TEST_CASE("make check fails where clang-tidy is absent, fails or has nothing to read") {
  const Tree tree;
  const std::string absent = tree.run("PATH=/nowhere /bin/bash train/scripts/tidy.sh -DTOLD");
  CHECK(contains(absent, "apt-get install clang-tidy"));
  CHECK(contains(absent, "exit status 2"));
  tree.executable("clang-tidy", "#!/bin/sh\necho \"$@\" >>ran\n");
  const std::string check = "PATH=.:\"$PATH\" train/scripts/tidy.sh -DTOLD";
  const std::string no_checkout = tree.run("GIT_DIR=/nowhere " + check);
  CHECK(contains(no_checkout, "expected a git checkout"));
  CHECK(contains(no_checkout, "exit status 2"));
  CHECK(contains(tree.run("git init -q ."), "exit status 0"));
  CHECK(contains(tree.run("git add ."), "exit status 0"));
  CHECK(contains(tree.run(check), "0 findings\nexit status 0"));
  CHECK(contains(tree.read("ran"), "tensor/add.cpp"));
  CHECK(contains(tree.read("ran"), " -- -DTOLD\n"));
  tree.executable("clang-tidy", "#!/bin/sh\nexit 1\n");
  CHECK(contains(tree.run(check), "0 findings\nexit status 1"));
}

TEST_CASE("make python without nanobind says how to get it where pip may not change the system") {
  const Tree tree;
  fs::create_directories(tree.folder.path() / "train/python");
  fs::copy("train/python/python.mk", tree.folder.path() / "train/python/python.mk");
  tree.executable("python", "#!/bin/sh\necho \"No module named 'nanobind'\" >&2\nexit 1\n");
  const std::string said = tree.run("make python PYTHON=./python");
  CAPTURE(said);
  CHECK(contains(said, "No module named 'nanobind'\n"));
  CHECK(contains(said, "python3 -m venv venv && venv/bin/pip install nanobind"));
  CHECK(contains(said, "exit status 2"));
}

TEST_CASE("make format is by clang-format 14 alone, and says how to get it") {
  const Tree tree;
  const auto format_by = [&](const std::string& version) {
    tree.executable("formatter", "#!/bin/sh\ncase $1 in --version) echo clang-format version " +
                                     version + " ;; *) echo \"$@\" >>ran ;; esac\n");
    return tree.run("make format CLANG_FORMAT=./formatter");
  };
  const std::string newer = format_by("19.1.7");
  CAPTURE(newer);
  CHECK(contains(newer, "./formatter says 'clang-format version 19.1.7'; expected version 14"));
  CHECK(contains(newer, "exit status 2"));
  CHECK_FALSE(tree.has("ran"));
  CHECK(format_by("14.0.6") == "exit status 0");
  CHECK(contains(tree.read("ran"), "-i attention/softmax.cpp"));
}

TEST_CASE("make refuses values that an option does not know, from the environment, too") {
  const Tree tree;
  for (const char* wrong : {"MODE=Release", "CUDA=yes", "MPI=yes", "PORTABLE=yes", "DNNL=no",
                            "WERROR=true", "WERROR="}) {
    CAPTURE(wrong);
    const std::string command_line =
        std::string(wrong) + " (from the command line): expected one of:";
    CHECK(contains(tree.run(std::string("make -n ") + wrong), command_line));
    const std::string environment =
        std::string(wrong) + " (from the environment): expected one of:";
    CHECK(contains(tree.run(std::string(wrong) + " make -n"), environment));
  }
  CHECK(contains(tree.run("make -n train RESUME=yes"), "RESUME=yes (from the command line)"));
}

TEST_CASE("make CUDA=1 without a CUDA compiler says so, and doctor does") {
  const Tree tree;
  const std::string said = tree.run("make CUDA=1 NVCC=/nowhere/nvcc");
  CHECK(contains(said, "CUDA=1: no nvcc here, NVCC is '/nowhere/nvcc'; expected"));
  CHECK(contains(said, "exit status 2"));
  CHECK_FALSE(tree.has("build/release-cuda"));
  CHECK(contains(tree.run("make CUDA=1 NVCC="), "NVCC is ''; expected"));
  const std::string doctor = tree.run("make doctor NVCC=/nowhere/nvcc");
  CHECK(contains(doctor, "CUDA compiler                      absent"));
}

TEST_CASE("make builds anew without a source or recipe that is gone, and with other libraries") {
  const Tree tree;
  const std::string tests = "build/release-cpu/skytape_tests";
  const std::string make = "make -s " + tests;
  CHECK(contains(tree.run(make), "link  " + tests));
  CHECK(tree.run(make) == "exit status 0");
  fs::remove(tree.folder.path() / "tests/add_test.cpp");
  CHECK(contains(tree.run(make), "link  " + tests));
  CHECK(contains(tree.run("ar t build/release-cpu/libskytape.a"), "add.cpp.o"));
  fs::remove(tree.folder.path() / "tensor/add.cpp");
  CHECK(contains(tree.run(make), "link  " + tests));
  CHECK_FALSE(contains(tree.run("ar t build/release-cpu/libskytape.a"), "add.cpp.o"));
  CHECK(contains(tree.run(make + " LDLIBS=-lm"), "link  " + tests));
  CHECK(contains(tree.run(make + " LDLIBS=-lm LDFLAGS=\"-Wl,-rpath,'/a b'\""), "link  " + tests));

  CHECK(contains(tree.run("make -s build/recipes.inc"), "exit status 0"));
  const fs::path recipes = tree.folder.path() / "train/config/recipes";
  fs::rename(recipes / "large.recipe", recipes / "larger.recipe");
  CHECK(contains(tree.run("make -s build/recipes.inc"), "exit status 0"));
  CHECK(contains(tree.read("build/recipes.inc"), "{\"larger\", "));
  CHECK_FALSE(contains(tree.read("build/recipes.inc"), "{\"large\", "));
}

TEST_CASE(
    "a compiler that is absent or cannot compile is named, and no library is called missing") {
  const Tree tree;
  tree.executable("old", "#!/bin/sh\necho 'unknown option -std=c++20' >&2\nexit 1\n");
  for (const char* compiler : {"/nowhere/g++", "./old"}) {
    for (const char* goal : {"all", "doctor"}) {
      CAPTURE(compiler);
      CAPTURE(goal);
      const std::string said = tree.run(std::string("make ") + goal + " CXX=" + compiler);
      CHECK(contains(said, std::string("CXX='") + compiler + "' cannot compile C++20 with OpenMP"));
      CHECK_FALSE(contains(said, "libfmt-dev"));
    }
  }
  CHECK(contains(tree.run("make CXX=./old"), "unknown option -std=c++20"));
  // A machine without any compiler still lacks it and all libraries.
  fs::create_directory(tree.folder.path() / "only");
  CHECK(tree.run("bash -c 'ln -s $(command -v cat sed tr grep) only'") == "exit status 0");
  const std::string bare =
      tree.run("PATH=only CXX=g++ /bin/bash train/scripts/dependencies.sh --install");
  CAPTURE(bare);
  CHECK(contains(bare, "missing: g++ libfmt-dev libeigen3-dev"));
  CHECK(contains(bare, "\n  sudo apt-get update && sudo apt-get install g++ libfmt-dev"));
  CHECK(contains(bare, "exit status 1"));
}

TEST_CASE("make leaves out the files that an editor keeps beside a source") {
  const Tree tree;
  fs::create_symlink("user@host.1", tree.folder.path() / "tensor/.#add.cpp");
  CHECK(contains(tree.run("make -s build/release-cpu/libskytape.a"), "exit status 0"));
}

TEST_CASE("make -n test runs no test") {
  const Tree tree;
  CHECK(contains(tree.run("make -n test PYTHON=n"),
                 "\ntrain/scripts/test.sh skytape_tests\nexit status 0"));
  CHECK_FALSE(tree.has("ran"));
  CHECK(contains(tree.run("make test PYTHON=n"), "no test case matches the filters"));
  CHECK(contains(tree.read("ran"), "skytape_tests --count"));
}

TEST_CASE("make compile_commands works in a folder whose name has a quote") {
  const Tree tree;
  CHECK(tree.run("sh -c 'mkdir q; cp -r [!q]* q'") == "exit status 0");
  fs::rename(tree.folder.path() / "q", tree.folder.path() / "it's");
  const std::string said = tree.run("make -C it\\'s compile_commands");
  CAPTURE(said);
  CHECK(contains(said, "exit status 0"));
  CHECK(contains(tree.read("it's/compile_commands.json"), "it's\", \"file\": \"tensor/add.cpp\""));
}

TEST_CASE("make names a variable that nothing reads, and takes values that look like several") {
  const Tree tree;
  CHECK(contains(tree.run("make -n train ATENTION=softmax"),
                 "ATENTION=softmax: no variable of this Makefile"));
  CHECK(contains(tree.run("make -n train task=text"), "task=text: no variable of this Makefile"));
  CHECK(contains(tree.run("make -n test AGRS=-tc=x"), "AGRS=-tc=x: no variable of this Makefile"));
  CHECK(contains(tree.run("make -n engine-test ATTENTION=softmax"),
                 "ATTENTION=softmax: make engine-test does not read it"));
  for (const std::string target : {"tour", "exercise", "exercise-check"}) {
    CHECK(contains(tree.run("make -n " + target + " ARGS=-tc=x"),
                   "ARGS=-tc=x: make " + target + " does not read it"));
  }
  const std::string said =
      tree.run("make -n train ATTENTION=softmax ARGS='--set width=8 batch=2' FROM='a b=c' LR:=1");
  CAPTURE(said);
  CHECK(contains(said, "--attention 'softmax'"));
  CHECK(contains(said, "--set width=8 batch=2"));
  CHECK(contains(said, "exit status 0"));
}
