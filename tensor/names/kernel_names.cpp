#include "tensor/names/kernel_names.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace skytape {
namespace {

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Takes back the scope in front of "::", its template arguments included.
void drop_scope(std::string& out) {
  if (!out.empty() && out.back() == '>') {
    int depth = 0;
    do {
      if (out.back() == '>') ++depth;
      if (out.back() == '<') --depth;
      out.pop_back();
    } while (depth > 0 && !out.empty());
  }
  while (!out.empty() && is_word(out.back())) out.pop_back();
}

}  // namespace

std::string short_name(const std::string& mangled) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  std::string text = demangled(mangled), out;
  for (std::size_t at = 0; (at = text.find(kAnonymous, at)) != std::string::npos;) {
    text.erase(at, kAnonymous.size());
  }
  int depth = 0;  // of template arguments
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') {
      if (depth == 0) break;                         // the parameters
      i = std::min(text.find(')', i), text.size());  // the type of an argument that is a number
    } else if (text.compare(i, 2, "::") == 0) {
      drop_scope(out);
      ++i;
    } else if (text[i] == ' ' && depth == 0) {
      out.clear();  // what it returns
    } else if (text.compare(i, 2, " >") == 0) {
      continue;
    } else {
      depth += text[i] == '<' ? 1 : text[i] == '>' ? -1 : 0;
      out += text[i];
    }
  }
  return out;
}

}  // namespace skytape
