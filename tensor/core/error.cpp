#include "tensor/core/error.hpp"

#include <locale>
#include <sstream>

namespace skytape {

std::string join(std::initializer_list<Part> parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // the program's may write 1024 as 1.024
  for (const Part& part : parts) part.print_(text, part.value_);
  return text.str();
}

void fail(std::initializer_list<Part> parts) { throw Error(join(parts)); }

}  // namespace skytape
