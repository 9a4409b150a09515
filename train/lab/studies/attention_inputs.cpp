#include "train/lab/studies/attention_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "attention/registry.hpp"
#include "data/batches.hpp"
#include "data/files/source.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/random/random.hpp"
#include "train/config/run_config.hpp"
#include "train/encoders/texts.hpp"
#include "train/formats/npy.hpp"
#include "train/formats/safetensors.hpp"
#include "train/lab/studies/exact_attention.hpp"
#include "train/process/progress.hpp"
#include "train/run/saved_model.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kUsualLengths[] = {512, 1024, 4096};

/// The usual lengths that fit, or the longest alone.
std::vector<std::int64_t> usual_lengths(std::int64_t longest) {
  std::vector<std::int64_t> lengths;
  for (const std::int64_t n : kUsualLengths) {
    if (n <= longest) lengths.push_back(n);
  }
  if (lengths.empty()) lengths.push_back(longest);
  return lengths;
}

/// Returns the attention's inputs in every layer when the model reads the batch's first sequence.
std::vector<LayerInputs> observe(const nn::Model& model, const data::Batch& batch,
                                 std::uint64_t seed) {
  std::vector<LayerInputs> layers;
  nn::StepContext context = nn::answer_context(seed);
  const DeviceBatch on_device = upload(batch, Device::cpu);
  keep_in(layers, context);
  Tape tape(Tape::Mode::eval);
  (void)model.encode(tape, on_device.input, 0, context);
  return layers;
}

/// One sequence of n bytes 1..255, each as likely.
data::Batch random_bytes(std::int64_t n, const Random& random) {
  constexpr double kKinds = 255;
  data::Batch batch;
  batch.size = 1;
  batch.width = batch.nominal_length = batch.real_tokens = n;
  for (const double u : tensor::uniform({n}, random, DType::f64, Device::cpu).to_vector()) {
    const double kind = std::min(kKinds * u, kKinds - 1);  // u may be 1
    batch.ids[0].push_back(1 + static_cast<std::int32_t>(kind));
  }
  batch.mask[0].assign(static_cast<std::size_t>(n), 1);
  batch.lengths[0] = batch.unmasked[0] = {static_cast<std::int32_t>(n)};
  batch.labels = {0};
  return batch;
}

}  // namespace

void keep_in(std::vector<LayerInputs>& layers, nn::StepContext& context) {
  context.observe = [&layers](int layer, const attention::Inputs& in, const Tensor& out) {
    const auto wide = [](const Tensor& x) { return x.defined() ? x.to(DType::f64) : x; };
    for (const Tensor& x : {in.q, in.k, in.v, out}) {
      if (x.defined() && !tensor::all_finite(x)) {
        throw NonFiniteError(
            fmt::format("layer {}: what its attention sees or gives is not finite", layer));
      }
    }
    layers.push_back({{wide(in.q), wide(in.k), wide(in.v), wide(in.mask), in.combined, wide(in.x),
                       wide(in.state)},
                      wide(out)});
  };
}

std::int64_t check_layer(std::int64_t layer, std::int64_t layers, const std::string& source) {
  if (layer < -1 || layer >= layers) {
    throw UsageError(fmt::format("--layer: expected 0..{} ({}), or -1 for the last, got {}",
                                 layers - 1, source, layer));
  }
  return layer < 0 ? layers - 1 : layer;
}

void check_length(const InputSource& source, std::int64_t n) {
  if (n < 1 || n > source.longest) {
    throw UsageError(
        fmt::format("--n: expected 1..{} positions ({}), got {}", source.longest, source.name, n));
  }
}

std::string repetition(const InputSource& source, std::int64_t n, std::int64_t count) {
  if (source.example(n, count - 1).front().example == count - 1) return {};
  return fmt::format("the source has fewer than {} of {} positions: they repeat",
                     counted(count, "example"), n);
}

namespace {

std::vector<LayerInputs> numbered(std::vector<LayerInputs> layers, std::int64_t example) {
  for (LayerInputs& layer : layers) layer.example = example;
  return layers;
}

}  // namespace

// ---- a fresh model ------------------------------------------------------------------------------

InputSource fresh_inputs(const std::string& recipe, std::uint64_t seed, std::int64_t longest) {
  Choices choices;
  choices.recipe = recipe;
  choices.task = "text";
  choices.attention = "softmax";
  choices.seed = seed;
  RunConfig config = resolve(choices);
  config.model.nominal_length = longest;
  const auto model = std::make_shared<nn::Model>(config.model, DType::f32, Device::cpu, seed);
  const Random tokens = fork(Random{seed, {}}, Purpose::data);

  InputSource source;
  source.name = fmt::format("fresh softmax model of recipe {} on random bytes", config.recipe);
  source.facts = {{"from", "fresh"}, {"recipe", config.recipe}, {"seed", seed}};
  source.longest = longest;
  source.usual_lengths = usual_lengths(longest);
  source.layers = config.model.layers;
  source.example = [model, tokens, seed](std::int64_t n, std::int64_t index) {
    const data::Batch batch = random_bytes(n, tokens.fork(static_cast<std::uint64_t>(index)));
    return numbered(observe(*model, batch, seed), index);
  };
  return source;
}

// ---- a trained run ------------------------------------------------------------------------------

namespace {

/// A run's model and the examples of its test split, found one after the other.
class RunReader {
 public:
  RunReader(SavedModel saved, data::Dataset split)
      : saved_(std::move(saved)), split_(std::move(split)) {}

  std::vector<LayerInputs> example(std::int64_t n, std::int64_t index) {
    if (n != length_) {
      length_ = n;
      rows_.clear();
      next_ = 0;
    }
    while (next_ < split_.size() && static_cast<std::int64_t>(rows_.size()) <= index) {
      if (collate(next_).lengths[0][0] == n) rows_.push_back(next_);
      ++next_;
    }
    if (rows_.empty()) {
      throw DataError(fmt::format("{}: no example of its test split has {} tokens",
                                  saved_.file.parent_path().string(), n));
    }
    const std::int64_t number = index % std::ssize(rows_);
    const std::int64_t row = rows_[static_cast<std::size_t>(number)];
    return numbered(observe(*saved_.model, collate(row), saved_.config.seed), number);
  }

 private:
  /// The example alone, cut to the length asked for, without padding.
  [[nodiscard]] data::Batch collate(std::int64_t row) const {
    data::BatchOptions options = saved_.config.batches;
    options.max_length = length_ - options.places_before();
    options.trim = true;
    options.round_to = 1;
    data::Batch batch;
    data::collate(split_, {row}, options, batch);
    return batch;
  }

  SavedModel saved_;
  data::Dataset split_;
  std::int64_t length_ = 0;         // of the examples in rows_
  std::vector<std::int64_t> rows_;  // examples with that many tokens
  std::int64_t next_ = 0;           // the first example not looked at
};

}  // namespace

InputSource run_inputs(const fs::path& folder, const std::string& checkpoint,
                       const fs::path& data_root) {
  SavedModel saved = load_run(folder, checkpoint, Device::cpu);
  if (saved.config.method->shared_qk) {
    throw UsageError(fmt::format("{}: {} uses its queries as keys; expected a run with keys",
                                 folder.string(), saved.config.method->name));
  }
  if (!data_root.empty()) saved.config.data_root = data_root;
  data::Dataset split = open_split(saved, "test");

  InputSource source;
  source.name =
      fmt::format("{} with {}, step {}", split.name(), saved.config.method->name, saved.step);
  source.facts = {{"from", "run"},
                  {"task", split.name()},
                  {"attention", saved.config.method->name},
                  {"recipe", saved.config.recipe},
                  {"seed", saved.config.seed},
                  {"step", saved.step},
                  {"test_fingerprint", split.fingerprint()}};
  source.longest = saved.config.batches.max_length > 0 ? saved.config.batches.max_length
                                                       : saved.config.model.nominal_length;
  source.usual_lengths = usual_lengths(source.longest);
  source.layers = saved.config.model.layers;
  const auto reader = std::make_shared<RunReader>(std::move(saved), std::move(split));
  source.example = std::bind_front(&RunReader::example, reader);
  return source;
}

// ---- a pre-trained encoder ----------------------------------------------------------------------

namespace {

/// An encoder and the texts of a file, found one after the other.
class TextReader {
 public:
  TextReader(Encoder encoder, const fs::path& file)
      : encoder_(std::move(encoder)), file_(file.string()), stream_(data::open_file(file)) {}

  std::vector<LayerInputs> example(std::int64_t n, std::int64_t index) {
    if (n != length_) {
      length_ = n;
      texts_.clear();
      stream_ = data::open_file(file_);
      lines_.emplace(*stream_, file_, data::kMaxLine);
    }
    while (static_cast<std::int64_t>(texts_.size()) <= index && read_line()) continue;
    if (texts_.empty()) {
      throw DataError(fmt::format(
          "{}: no text of {} tokens in it, one a line, its two ends among them", file_, n));
    }
    const std::int64_t number = index % std::ssize(texts_);
    const EncoderText& text = texts_[static_cast<std::size_t>(number)];
    std::vector<LayerInputs> layers;
    nn::StepContext context;
    keep_in(layers, context);
    Tape tape(Tape::Mode::eval);
    (void)encoder_.model->encode(tape, pad_texts(encoder_, {text}, 0, 1, n), context);
    return numbered(std::move(layers), number);
  }

 private:
  /// Keeps the next text if it is long enough; false at the file's end.
  bool read_line() {
    std::string_view line;
    if (!lines_->next(line)) return false;
    const std::string place = fmt::format("{}:{}", file_, lines_->line_number());
    EncoderText text = read_text(encoder_, std::string(line), place, length_);
    if (static_cast<std::int64_t>(text.ids.size()) == length_) texts_.push_back(std::move(text));
    return true;
  }

  Encoder encoder_;
  std::string file_;
  std::unique_ptr<data::ByteStream> stream_;
  std::optional<data::LineReader> lines_;
  std::int64_t length_ = 0;         // of the texts that are kept
  std::vector<EncoderText> texts_;  // with that many tokens
};

}  // namespace

InputSource encoder_inputs(const fs::path& folder, const fs::path& texts,
                           std::optional<std::uint64_t> untrained) {
  EncoderChoice choice;
  choice.untrained = untrained.has_value();
  choice.seed = untrained.value_or(choice.seed);
  Encoder encoder = load_encoder(folder, choice);
  InputSource source;
  const std::string name = fs::absolute(folder).lexically_normal().filename().string();
  source.name =
      fmt::format("{}{} on {}", untrained ? "untrained " : "", name, texts.filename().string());
  source.facts = {{"from", "model"},
                  {"model", name},
                  {"kind", to_string(encoder.facts.kind)},
                  {"untrained", choice.untrained},
                  {"texts", texts.filename().string()}};
  if (untrained) source.facts["seed"] = *untrained;
  source.longest = encoder.facts.longest();
  source.usual_lengths = usual_lengths(source.longest);
  source.layers = encoder.facts.model.layers;
  const auto reader = std::make_shared<TextReader>(std::move(encoder), texts);
  source.example = std::bind_front(&TextReader::example, reader);
  return source;
}

// ---- a file -------------------------------------------------------------------------------------

namespace {

struct NamedFile {
  std::string place;  // for messages
  Tensor value;
};

/// q, k and v as the files have them.
std::vector<NamedFile> read_files(const std::string& files) {
  std::vector<NamedFile> found;
  if (files.ends_with(".safetensors")) {
    const SafetensorsFile file = read_safetensors(files);
    for (const char* name : {"q", "k", "v"}) {
      const Tensor* tensor = file.find(name);
      if (tensor == nullptr) {
        throw DataError(fmt::format("{}: no tensor {}; expected q, k and v", files, name));
      }
      found.push_back({fmt::format("{}: {}", files, name), *tensor});
    }
    return found;
  }
  std::size_t begin = 0;
  while (begin <= files.size()) {
    const std::size_t end = std::min(files.find(',', begin), files.size());
    const std::string file = files.substr(begin, end - begin);
    if (!file.ends_with(".npy")) break;
    found.push_back({file, read_npy(file).tensor(DType::f64)});
    begin = end + 1;
  }
  if (found.size() != 3 || begin <= files.size()) {
    throw UsageError(
        fmt::format("--qkv: expected FILE.safetensors or Q.npy,K.npy,V.npy, got '{}'", files));
  }
  return found;
}

/// As f64[B, H, N, D]; missing leading axes are 1.
Tensor four_axes(const NamedFile& file) {
  const Tensor& x = file.value;
  if (x.rank() < 2 || x.rank() > 4 || x.numel() == 0 || x.dtype() == DType::i32) {
    throw DataError(
        fmt::format("{}: expected real numbers [B, H, N, D], [H, N, D] or [N, D], got {}",
                    file.place, join(x)));
  }
  const std::int64_t batch = x.rank() == 4 ? x.size(0) : 1, heads = x.rank() > 2 ? x.size(-3) : 1;
  const Tensor wide = x.to(DType::f64);
  if (!tensor::all_finite(wide)) {
    throw DataError(fmt::format("{}: a value is not finite", file.place));
  }
  return wide.reshape({batch, heads, x.size(-2), x.size(-1)});
}

}  // namespace

InputSource file_inputs(const std::string& files) {
  const std::vector<NamedFile> found = read_files(files);
  const Tensor q = four_axes(found[0]), k = four_axes(found[1]), v = four_axes(found[2]);
  for (std::size_t i = 1; i < 3; ++i) {
    if (found[i].value.shape() != found[0].value.shape()) {
      throw DataError(fmt::format("{}: expected the shape of q, {}, got {}", found[i].place,
                                  join(found[0].value.shape()), join(found[i].value.shape())));
    }
  }
  InputSource source;
  source.name = "given queries, keys and values";
  source.facts = {{"from", "file"},
                  {"shape", data::Json::array({q.size(0), q.size(1), q.size(2), q.size(3)})}};
  source.longest = q.size(2);
  source.usual_lengths = {q.size(2)};
  source.layers = 1;
  source.has_x = false;
  source.example = [q, k, v](std::int64_t n, std::int64_t index) {
    const std::int64_t b = index % q.size(0);
    const auto cut = [&](const Tensor& x) { return tensor::narrow(x.slice(b, b + 1), 2, 0, n); };
    LayerInputs layer{{cut(q), cut(k), cut(v), Tensor::full({1, n}, 1, DType::f64, Device::cpu)},
                      {}};
    layer.out = exact_output("softmax", layer.in);
    layer.example = b;
    return std::vector<LayerInputs>{layer};
  };
  return source;
}

}  // namespace skytape::train
