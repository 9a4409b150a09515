#include "train/encoders/texts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "autograd/ops.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/free_memory.hpp"
#include "tensor/kernels/elementwise.hpp"

namespace skytape::train {
namespace {

constexpr std::int64_t kPositionsAtOnce = 4096;  // of a batch: fits the caches, and little memory

/// Copies rows into their place in a tensor of all rows, on the CPU.
void put_rows(Tensor& all, std::size_t begin, const Tensor& rows) {
  const auto first = static_cast<std::int64_t>(begin);
  Tensor place = all.slice(first, first + rows.size(0));
  place.copy_from(rows.to(Device::cpu));
}

}  // namespace

EncoderText read_text(const Encoder& encoder, const std::string& text, const std::string& place,
                      std::int64_t longest) {
  constexpr std::int64_t kEnds = 2;
  EncoderText result;
  std::vector<std::int32_t> tokens = encoder.vocabulary->encode(text, place);
  const auto most = static_cast<std::size_t>(longest - kEnds);
  result.cut = tokens.size() > most;
  if (result.cut) tokens.resize(most);
  result.ids.push_back(encoder.first);
  result.ids.insert(result.ids.end(), tokens.begin(), tokens.end());
  result.ids.push_back(encoder.last);
  return result;
}

nn::BertInput pad_texts(const Encoder& encoder, const std::vector<EncoderText>& texts,
                        std::size_t begin, std::size_t end, std::int64_t width) {
  const auto rows = static_cast<std::int64_t>(end - begin);
  const Shape shape = {rows, width};
  const auto cells = static_cast<std::size_t>(shape.numel());
  const EncoderFacts& facts = encoder.facts;
  const bool roberta = facts.kind == EncoderKind::roberta;
  std::vector<std::int32_t> ids(cells, static_cast<std::int32_t>(facts.padding_id));
  std::vector<std::int32_t> positions(cells);
  std::vector<float> mask(cells);
  for (std::size_t b = begin; b < end; ++b) {
    const std::vector<std::int32_t>& text = texts[b].ids;
    auto next = static_cast<std::int32_t>(facts.first_position());
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
      const std::size_t cell = (b - begin) * static_cast<std::size_t>(width) + i;
      const bool token = i < text.size();
      if (token) ids[cell] = text[i];
      mask[cell] = token ? 1 : 0;
      // RoBERTa does not count what has the padding's id, be it padding or in the text.
      const bool counts = !roberta || ids[cell] != facts.padding_id;
      positions[cell] = counts ? next++ : static_cast<std::int32_t>(facts.padding_id);
    }
  }
  const Parameter& any = encoder.model->parameters().parameters().front();
  const Device device = any.value.device();
  const auto indices = [&](const std::vector<std::int32_t>& values) {
    return Tensor::from(values, shape, DType::i32, device);
  };
  return {indices(ids), indices(positions), Tensor::zeros(shape, DType::i32, device),
          Tensor::from(mask, shape, any.value.dtype(), device)};
}

Encodings encode_texts(const Encoder& encoder, const std::vector<EncoderText>& texts) {
  std::int64_t width = 0;
  for (const EncoderText& text : texts) {
    width = std::max(width, static_cast<std::int64_t>(text.ids.size()));
  }
  const DType dtype = encoder.model->parameters().parameters().front().value.dtype();
  const auto count = static_cast<std::int64_t>(texts.size());
  const std::int64_t channels = encoder.facts.model.width;
  const double needed = static_cast<double>(count * width) * static_cast<double>(channels) *
                        static_cast<double>(size_of(dtype)) * 2;  // here and on its way to a file
  if (needed > static_cast<double>(free_bytes(Device::cpu))) {
    throw Error(fmt::format(
        "encode: {} texts of {} tokens take {:.1f} GB of memory; expected fewer texts in a file, "
        "or a smaller --max-length",
        count, width, needed / 1e9));
  }
  const auto zeros = [](const Shape& shape, DType kind) {
    return Tensor::zeros(shape, kind, Device::cpu);
  };
  Encodings all{zeros({count, width}, DType::i32), zeros({count, width}, DType::i32),
                zeros({count, width, channels}, dtype), zeros({count, channels}, dtype)};
  const auto at_once =
      static_cast<std::size_t>(std::max<std::int64_t>(1, kPositionsAtOnce / width));
  for (std::size_t begin = 0; begin < texts.size(); begin += at_once) {
    const std::size_t end = std::min(texts.size(), begin + at_once);
    const nn::BertInput input = pad_texts(encoder, texts, begin, end, width);
    Tape tape(Tape::Mode::eval);
    const Var hidden = encoder.model->encode(tape, input, nn::answer_context(0));  // [B, N, E]
    // Every text has two tokens at least.
    const Var tokens = sum(tape.constant(input.mask), 1, true);  // [B, 1]
    put_rows(all.ids, begin, input.ids);
    put_rows(all.mask, begin, input.mask.to(DType::i32));
    put_rows(all.hidden, begin, hidden.value());
    const Tensor pooled = (sum(mask_rows(hidden, input.mask), 1) / tokens).value();  // [B, E]
    for (std::size_t b = begin; b < end && !tensor::all_finite(pooled); ++b) {
      if (tensor::all_finite(pooled[static_cast<std::int64_t>(b - begin)])) continue;
      throw NonFiniteError(fmt::format("encode: text {}: its encoding is not finite", b + 1));
    }
    put_rows(all.pooled, begin, pooled);
  }
  return all;
}

}  // namespace skytape::train
