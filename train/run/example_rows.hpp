// The examples of a file that a trained run is asked about: rows of custom data as training read
// them, or lines of a task.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/custom/format.hpp"
#include "data/files/source.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {

/// A file of examples, as the user's flags describe it. Where one is empty, the file decides, or
/// the one that training read.
struct ExampleFile {
  std::string path;  // "-": standard input
  std::string format, delimiter;
  data::ColumnNames columns;
  bool header = false;  // the first row names the columns
};

/// Passes the rows of `stream` to `visit`, without blank ones. `hints` are those of custom data.
/// Returns remarks for the user about the way in which the file was read. DataError naming the row.
std::vector<std::string> read_examples(data::ByteStream& stream, const ExampleFile& file,
                                       const RunConfig& config, data::FormatHints hints,
                                       const std::function<void(const data::Record&)>& visit);

}  // namespace skytape::train
