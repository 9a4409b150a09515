// A saved configuration that goes on: what the command line leaves open is as it was saved.
#pragma once

#include <string>

#include "data/files/json_fwd.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

/// The configuration in `saved`, the object of `file`, with what the user says now in its place:
/// the settings of `choices`, and what its given flags say. Device and data root are the saved ones
/// unless given. UsageError for a value that makes another run of it.
[[nodiscard]] RunConfig resumed(Choices choices, const data::Json& saved, const std::string& file);

/// The configuration in the metadata of weights, on the device and with the data root of `choices`.
/// UsageError for a choice of the user's that differs from it.
[[nodiscard]] RunConfig of_weights(const Choices& choices, const data::Json& saved,
                                   const std::string& file);

}  // namespace skytape::train
