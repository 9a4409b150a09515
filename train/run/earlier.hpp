// The state that an earlier process left in a run's folder, judged before --resume continues it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/files/json_fwd.hpp"

namespace skytape::nn {
class Model;
}

namespace skytape::train {

struct CheckpointFacts;
struct RunState;
struct SafetensorsFile;

/// UsageError naming what differs if config.json in `folder` is that of another run than `config`;
/// there need be none.
void refuse_other_run(const std::filesystem::path& folder, const data::Json& config);

/// DataError naming both if two provenances of data mean other things by the same numbers: classes
/// by their labels, ids by the vocabulary and how texts are cut; with `columns` also where labels
/// and texts stand in a file. Who says nothing contradicts nobody.
void refuse_other_meaning(const data::Json& one, const std::string& of_one, const data::Json& other,
                          const std::string& of_other, bool columns);

/// For a folder without last.safetensors, where a run would begin anew: DataError if steps have
/// been lost, UsageError if the run started from weights that --init does not name this time.
void refuse_lost_run(const std::filesystem::path& folder, const data::Json& config, bool init);

/// Reads what the checkpoint `path` says of itself. DataError if it is one of another run than
/// `config`, the object of config.json next to it, or has other labels or another vocabulary.
[[nodiscard]] CheckpointFacts facts_of_this_run(const SafetensorsFile& file,
                                                const std::filesystem::path& path,
                                                const data::Json& config);

/// Loads the weights of the best step of `state`, which would be tested at the end: DataError if
/// they are missing or others, as the steps to come would then be in vain.
void load_best(const std::filesystem::path& path, const data::Json& config, const RunState& state,
               nn::Model& model);

/// Warnings, one for each of device, threads and program that is not what it was: the same bits are
/// promised for the same ones only. Both are config.json's objects.
[[nodiscard]] std::vector<std::string> reproducibility_warnings(const data::Json& saved,
                                                                const data::Json& now);

}  // namespace skytape::train
