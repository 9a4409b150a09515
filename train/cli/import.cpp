#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "data/files/output.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/encoders/encoder.hpp"
#include "train/encoders/texts.hpp"
#include "train/process/progress.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"

namespace skytape::train {
namespace {

/// Describes an encoder on stderr, for both commands.
void describe(const Encoder& encoder, Progress& progress) {
  const nn::BertConfig& model = encoder.facts.model;
  progress.line(fmt::format(
      "{}: {}, {} layers, width {}, {} heads, {} entries, at most {} tokens, {} parameters",
      encoder.folder.string(), to_string(encoder.facts.kind), model.layers, model.width,
      model.heads, model.vocabulary, encoder.facts.longest(),
      encoder.model->parameters().parameter_count()));
  if (!encoder.unused.empty()) {
    progress.line(fmt::format("not used: {}", listed(encoder.unused)));
  }
}

struct ImportFlags {
  std::string from, out;
};

int run(const ImportFlags& flags) {
  const Encoder encoder = load_encoder(flags.from);
  Progress progress;
  describe(encoder, progress);
  save_encoder(encoder, flags.out);
  fmt::print("{}\n", flags.out);
  return 0;
}

struct EncodeFlags {
  std::string model, text, out, precision = "fp32", device = "auto";
  std::int64_t longest = 0;
  int threads = 0;
};

std::vector<EncoderText> read_texts(const Encoder& encoder, const EncodeFlags& flags) {
  const std::int64_t most = encoder.facts.longest();
  constexpr std::int64_t kShortest = 3;  // two ends, and a token between
  if (flags.longest != 0 && flags.longest < kShortest) {
    throw UsageError(
        fmt::format("--max-length: expected at least {}, got {}", kShortest, flags.longest));
  }
  if (flags.longest > most) {
    throw UsageError(fmt::format("--max-length: expected at most {}, which {} reads, got {}", most,
                                 flags.model, flags.longest));
  }
  const bool piped = flags.text == "-";
  const std::string shown = piped ? "standard input" : flags.text;
  const auto stream = data::open_file(piped ? "/dev/stdin" : flags.text);
  data::LineReader lines(*stream, shown, data::kMaxLine);
  std::vector<EncoderText> texts;
  for (std::string_view line; lines.next(line);) {
    texts.push_back(read_text(encoder, std::string(line),
                              fmt::format("{}:{}", shown, lines.line_number()),
                              flags.longest > 0 ? flags.longest : most));
  }
  if (texts.empty()) {
    throw DataError(fmt::format("{}: no text in it, expected one a line", shown));
  }
  return texts;
}

/// Error if the results cannot be written to --out, UsageError if they would replace what is read.
void check_out(const EncodeFlags& flags) {
  namespace fs = std::filesystem;
  data::ensure_can_write(flags.out);
  std::error_code absent;  // one of the files is not there yet
  if (fs::equivalent(flags.text, flags.out, absent)) {
    throw UsageError(fmt::format("--out {}: is the file of --text, expected another", flags.out));
  }
  if (!fs::is_directory(flags.model, absent)) return;
  for (const auto& entry : data::entries_of(flags.model)) {
    if (!fs::equivalent(entry.path(), flags.out, absent)) continue;
    throw UsageError(fmt::format("--out {}: is a file of --model, expected another", flags.out));
  }
}

int run(const EncodeFlags& flags) {
  set_threads(flags.threads);
  if (flags.precision != "fp32" && flags.precision != "fp64") {
    throw UsageError(unknown_name("precision", flags.precision, {"fp32", "fp64"}));
  }
  check_out(flags);
  const DType dtype = flags.precision == "fp64" ? DType::f64 : DType::f32;
  const Encoder encoder = load_encoder(flags.model, {dtype, parse_device(flags.device)});
  Progress progress;
  describe(encoder, progress);
  const std::vector<EncoderText> texts = read_texts(encoder, flags);
  const auto cut =
      std::count_if(texts.begin(), texts.end(), [](const EncoderText& text) { return text.cut; });
  if (cut > 0) {
    progress.line(
        fmt::format("{} of {} texts are longer than the model reads, or than "
                    "--max-length: their ends were not read",
                    cut, texts.size()));
  }
  const Encodings encodings = encode_texts(encoder, texts);
  write_safetensors(flags.out,
                    {{"input_ids", encodings.ids},
                     {"attention_mask", encodings.mask},
                     {"last_hidden_state", encodings.hidden},
                     {"pooled", encodings.pooled}},
                    {});
  fmt::print("{}: {} texts, {} tokens wide\n", flags.out, texts.size(), encodings.ids.size(1));
  return 0;
}

}  // namespace

void add_import(const Command& program) {
  const Command command = program.add_command(
      "import", "copy an encoder of Hugging Face's (BERT, RoBERTa) into a folder");
  const auto flags = std::make_shared<ImportFlags>();
  command
      .add_option(
          "--from", flags->from,
          "folder with config.json, model.safetensors, and vocab.txt, vocab.json and merges.txt, "
          "or tokenizer.json")
      .required();
  command.add_option("--out", flags->out, "folder to write, which must not be there yet")
      .required();
  command.runs([flags] { return run(*flags); });
}

void add_encode(const Command& program) {
  const Command command = program.add_command("encode", "encode texts by a pre-trained encoder");
  const auto flags = std::make_shared<EncodeFlags>();
  command.add_option("--model", flags->model, "folder of Hugging Face's, or of `skytape import`")
      .required();
  command.add_option("--text", flags->text, "file with one text a line, or - for standard input")
      .required();
  command
      .add_option("--out", flags->out,
                  "FILE.safetensors for input_ids, attention_mask, last_hidden_state and pooled")
      .required();
  command.add_option("--precision", flags->precision, "fp32 or fp64");
  command
      .add_option("--max-length", flags->longest,
                  "tokens of a text that are read, ends included; 0: as many as the model can")
      .between(0, std::int64_t{1} << 20);
  command.add_option("--device", flags->device, "auto, cpu or cuda");
  command.add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
