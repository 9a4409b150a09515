// The identity of a run: two runs are the same if they compute the same. It is the text of
// everything that decides a run's numbers. --resume, grids, means over seeds, tables and reports
// compare that text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/files/json.hpp"

namespace skytape::train {

/// Key and value, sorted by key.
using Identity = std::map<std::string, std::string>;

/// Returns the identity of the run of that config.json, its seed aside: task, data,
/// method, phase, the initial weights, and every effective setting. Not the recipe's name, which is
/// a label; not device, threads, folders and how often checkpoints are written. A setting that the
/// file lacks has its default: it was saved before the key existed, and the default is what the
/// program did then. Numbers count, not their spelling: 1e-3 is 0.001. JsonError for settings of
/// another kind.
[[nodiscard]] Identity identity_of(const data::Json& config);

/// Returns it without the data, which a configuration knows only when they are open.
[[nodiscard]] Identity without_data(Identity identity);

/// Every key in which two runs differ, in words: "lr: 1e-4 there, 2e-4 here; data, train: …". Empty
/// for the same run. Values are as the files spell them.
[[nodiscard]] std::string differences(const Identity& there, const Identity& here);

/// Compares two config.json, with their seeds.
[[nodiscard]] std::string differences(const data::Json& saved, const data::Json& wanted);

/// Recipe and what the user set, sorted by key: "skytape", "my.recipe (file), lr=1e-3, steps=500".
[[nodiscard]] std::string settings_of(const data::Json& config);

/// A name for each run, by settings_of(): the same for two runs that differ in their seeds (and
/// data) alone, another for any two of one task and method that differ in more. Where the names of
/// such two are alike, the keys in which they differ follow: "my.recipe (file), lr=1e-3". Of runs
/// with one identity the first says the name.
[[nodiscard]] std::vector<std::string> distinct_names(const std::vector<data::Json>& configs);

}  // namespace skytape::train
