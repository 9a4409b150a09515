#include "train/step/answers.hpp"

#include <algorithm>
#include <cmath>

namespace skytape::train {
namespace {

std::int64_t largest(std::span<const double> values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

/// log of the sum of exp(x), where the largest x does not overflow.
double log_sum(std::span<const double> x) {
  const double highest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - highest);
  return highest + std::log(sum);
}

}  // namespace

bool Answer::unanimous() const {
  return std::all_of(of_draws.begin(), of_draws.end(),
                     [this](std::int64_t own) { return own == of_draws[0]; });
}

std::optional<Answer> answer_of(std::span<const double> scores, std::int64_t draws) {
  const bool finite =
      std::all_of(scores.begin(), scores.end(), [](double score) { return std::isfinite(score); });
  if (!finite) return std::nullopt;
  const auto count = static_cast<std::size_t>(draws), classes = scores.size() / count;
  std::vector<double> each(scores.begin(), scores.end());  // [C, K]: log of a draw's probability
  Answer answer;
  for (std::size_t k = 0; k < count; ++k) {
    const std::span<const double> own = scores.subspan(k * classes, classes);
    answer.of_draws.push_back(largest(own));
    const double total = log_sum(own);
    for (std::size_t c = 0; c < classes; ++c) each[c * count + k] = own[c] - total;
  }
  const double share = std::log(static_cast<double>(draws));
  for (std::size_t c = 0; c < classes; ++c) {
    answer.log_probabilities.push_back(log_sum(std::span(each).subspan(c * count, count)) - share);
  }
  answer.label = draws == 1 ? answer.of_draws[0] : largest(answer.log_probabilities);
  return answer;
}

}  // namespace skytape::train
