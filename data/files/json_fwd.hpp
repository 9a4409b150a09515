// The name of JSON values, for headers whose functions take or return some. nlohmann's header takes
// seconds to compile: data/files/json.hpp, which has the values themselves, is for .cpp files.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace skytape::data {
using Json = nlohmann::json;
}  // namespace skytape::data
