// The rules of the folders: includes go one way, each folder has a page, and what a file
// gives to others stands in a header.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/doctest.hpp"

namespace fs = std::filesystem;

namespace {

// An include may point to the right, or stay within its top folder.
const std::vector<std::set<std::string>> kLayers = {
    {"train"}, {"data", "nn"}, {"attention"}, {"autograd"}, {"tensor"}};

/// Place in kLayers of the layer that a folder belongs to; -1 for none.
int layer_of(const std::string& folder) {
  const std::string top = folder.substr(0, folder.find('/'));
  for (std::size_t i = 0; i < kLayers.size(); ++i) {
    if (kLayers[i].contains(top)) return static_cast<int>(i);
  }
  return -1;
}

bool is_source(const fs::path& file) {
  const std::string extension = file.extension().string();
  return extension == ".cpp" || extension == ".hpp" || extension == ".cu" || extension == ".def";
}

struct Include {
  std::string file, target;  // from the repository's root
};

/// Functions that a source declares and does not define: their signatures are written twice by
/// hand, and whoever reads the definition does not see who calls it. Namespaces are not indented,
/// so declarations are what begins a line.
std::vector<std::string> hidden_declarations(std::istream& source) {
  const std::regex begins(R"re(^[A-Za-z_][\w:<>,&* ]*[ &*](\w+)\([^=]*)re");
  std::set<std::string> declared, defined;
  std::smatch match;
  for (std::string line; std::getline(source, line);) {
    if (!std::regex_match(line, match, begins)) continue;
    const std::string name = match[1];
    while (line.find_first_of(";{") == std::string::npos && std::getline(source, line)) continue;
    const std::size_t end = line.find_first_of(";{");
    (end != std::string::npos && line[end] == '{' ? defined : declared).insert(name);
  }
  std::vector<std::string> hidden;
  std::set_difference(declared.begin(), declared.end(), defined.begin(), defined.end(),
                      std::back_inserter(hidden));
  return hidden;
}

/// Folders with sources, the includes between them, and declarations by hand.
struct Sources {
  std::set<std::string> folders;
  std::map<std::string, std::map<std::string, Include>> edges;  // by folder and folder
  std::map<std::string, std::vector<std::string>> hidden;       // by file
};

Sources read_sources() {
  Sources sources;
  const std::regex include(R"re(^#include "([^"]+)")re");
  for (const auto& layer : kLayers) {
    for (const std::string& top : layer) {
      for (const auto& entry : fs::recursive_directory_iterator(top)) {
        if (!entry.is_regular_file() || !is_source(entry.path())) continue;
        const std::string file = entry.path().string();
        const std::string folder = entry.path().parent_path().string();
        sources.folders.insert(folder);
        std::ifstream in(file);
        if (entry.path().extension() != ".hpp" && entry.path().extension() != ".def") {
          sources.hidden[file] = hidden_declarations(in);
          in.clear();
          in.seekg(0);
        }
        std::smatch match;
        for (std::string line; std::getline(in, line);) {
          if (!std::regex_search(line, match, include)) continue;
          const std::string target = match[1];
          const std::string other = fs::path(target).parent_path().string();
          if (other != folder) sources.edges[folder].insert({other, {file, target}});
        }
      }
    }
  }
  return sources;
}

/// A way from `folder` back to itself along includes, as the files that make it; empty: there is
/// none.
std::vector<Include> way_back(const Sources& sources, const std::string& folder) {
  std::map<std::string, Include> reached_by;
  std::vector<std::string> open = {folder};
  while (!open.empty()) {
    const std::string at = open.back();
    open.pop_back();
    const auto edges = sources.edges.find(at);
    if (edges == sources.edges.end()) continue;
    for (const auto& [next, include] : edges->second) {
      if (!reached_by.insert({next, include}).second) continue;
      if (next == folder) {
        std::vector<Include> way;
        std::string place = folder;
        do {
          way.insert(way.begin(), reached_by.at(place));
          place = fs::path(way.front().file).parent_path().string();
        } while (place != folder);
        return way;
      }
      open.push_back(next);
    }
  }
  return {};
}

/// Path and text of each file of the layers whose name ends so.
std::map<std::string, std::string> files_ending(const char* ending) {
  std::map<std::string, std::string> texts;
  for (const auto& layer : kLayers) {
    for (const std::string& top : layer) {
      for (const auto& entry : fs::recursive_directory_iterator(top)) {
        if (entry.path().extension() != ending) continue;
        std::ifstream in(entry.path());
        texts[entry.path().string()] = {std::istreambuf_iterator<char>(in), {}};
      }
    }
  }
  return texts;
}

}  // namespace

TEST_CASE("includes never point to a layer further left") {
  const Sources sources = read_sources();
  REQUIRE_MESSAGE(sources.folders.size() > 20, "run the tests from the repository's root");
  for (const auto& [folder, edges] : sources.edges) {
    for (const auto& [other, include] : edges) {
      if (other == "build") continue;  // written by the build from files of the folder itself
      const int from = layer_of(folder), to = layer_of(other);
      CHECK_MESSAGE(to >= 0, include.file, " includes ", include.target,
                    ", which is in no layer of the library");
      const bool same_layer =
          folder.substr(0, folder.find('/')) == other.substr(0, other.find('/'));
      CHECK_MESSAGE((to > from || same_layer), include.file, " includes ", include.target,
                    ": a step up; train, then data and nn, attention, autograd, tensor");
    }
  }
}

TEST_CASE("the core includes nothing of the laboratory") {
  const auto of_laboratory = [](const std::string& name) { return name.starts_with("train/lab"); };
  int inside = 0;
  for (const auto& [folder, edges] : read_sources().edges) {
    // The Python module is a separate program, as the laboratory is.
    const bool may = of_laboratory(folder) || folder.starts_with("train/python");
    for (const auto& [other, include] : edges) {
      if (!of_laboratory(other)) continue;
      CHECK_MESSAGE(may, include.file, " includes ", include.target,
                    ": training must build without train/lab");
      ++inside;
    }
  }
  CHECK(inside > 0);  // the laboratory's own: its name is spelled as here
}

TEST_CASE("includes between folders make no cycle") {
  const Sources sources = read_sources();
  for (const std::string& folder : sources.folders) {
    std::ostringstream way;
    for (const Include& step : way_back(sources, folder)) {
      way << "\n  " << step.file << " includes " << step.target;
    }
    CHECK_MESSAGE(way.str().empty(), "from ", folder, " back to it:", way.str());
  }
}

TEST_CASE("a source declares no function that another one defines: a header does, for both") {
  std::istringstream both(
      "void sum_on(Cpu, const Tensor& x,\n            Tensor& y);\nvoid own();\nvoid own() {}\n");
  CHECK(hidden_declarations(both) == std::vector<std::string>{"sum_on"});
  for (const auto& [file, names] : read_sources().hidden) {
    for (const std::string& name : names) {
      CHECK_MESSAGE(false, file, " declares ", name,
                    " by hand: its _plan.hpp, or its header, should");
    }
  }
}

TEST_CASE(
    "headers do not hide who asks whether there is CUDA: make tells only sources that it sees "
    "ask") {
  std::set<std::string> headers;
  for (const auto& [path, text] : files_ending(".hpp")) {
    for (const char* asks :
         {"\"tensor/core/on_device.hpp\"", "\"tensor/launch/side_by_side.hpp\""}) {
      if (text.find(asks) != text.npos) headers.insert(path);
    }
  }
  CHECK(headers == std::set<std::string>{"tensor/launch/side_by_side.hpp"});
}

// on_device() calls a function with Cpu, too: without an optimiser (make MODE=debug) g++ then wants
// that half of what has none, and the program does not link.
TEST_CASE("what only a GPU has is called by on_cuda") {
  const std::map<std::string, std::string> sources = files_ending(".cpp");
  REQUIRE(sources.size() > 100);
  for (const auto& [path, text] : sources) {
    CHECK_MESSAGE(text.find("on_device(Device::cuda,") == text.npos, path);
  }
}

TEST_CASE("every folder has a README that says what it holds") {
  for (const std::string& folder : read_sources().folders) {
    std::ifstream readme(fs::path(folder) / "README.md");
    std::string title, text;
    std::getline(readme, title);
    while (text.empty() && std::getline(readme, text)) continue;
    CHECK_MESSAGE((title.starts_with("# ") && text.size() > 20), folder,
                  "/README.md: expected a title and a line that says what the folder holds");
  }
}

TEST_CASE("make tour compiles its eight pages and the layers they read, no data and no training") {
  if (!fs::exists("Makefile")) {
    std::printf("skipped, no Makefile here: what make tour compiles\n");
    return;
  }
  FILE* const make = ::popen("env -u MAKEFLAGS -u MAKELEVEL make -n CUDA=0 tour 2>&1", "r");
  REQUIRE(make != nullptr);
  std::string said;
  char part[4096];
  while (std::fgets(part, sizeof part, make) != nullptr) said += part;
  REQUIRE_MESSAGE(::pclose(make) == 0, said);
  std::map<std::string, int> compiled;  // files, by their top folder
  const std::regex file(R"re(echo "  c\+\+   (\w+)/[^"]*\.cpp")re");
  for (std::sregex_iterator at(said.begin(), said.end(), file), end; at != end; ++at) {
    ++compiled[(*at)[1]];
  }
  CHECK(compiled["tests"] == 11);  // pages, doctest's main, what compares, what knows the devices
  for (const char* layer : {"tensor", "autograd", "attention", "nn"}) CHECK(compiled[layer] > 0);
  CHECK(compiled["data"] == 0);
  CHECK(compiled["train"] == 0);
}
