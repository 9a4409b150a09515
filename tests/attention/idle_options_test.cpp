// Options that another option of their method leaves without effect say so, and are right.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensor/core/error.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

/// An option with two values, settings in which it acts, and others in which it does not.
struct Row {
  std::vector<const char*> methods;
  std::string option;
  std::pair<const char*, const char*> values;
  OptionValues acts;
  std::vector<std::pair<OptionValues, std::string>> idle;  // and why, without the method's name
  double rounding = 0;  // of sums in another order; 0: the option changes no bit
};

const Row kRows[] = {
    {{"linformer"},
     "features",
     {"8", "9"},
     {{"layer_features", ""}},
     {{{{"layer_features", "7"}}, "layer_features is 7"}}},
    {{"linformer"},
     "sharing",
     {"keyvalue", "official"},
     {{"features", "8"}},
     {{{{"projection", "mean"}}, "projection is mean"},
      {{{"projection", "max"}}, "projection is max"},
      {{{"projection", "conv"}}, "projection is conv"}}},
    {{"linformer"},
     "frozen",
     {"0", "1"},
     {{"features", "8"}},
     {{{{"projection", "mean"}}, "projection is mean"},
      {{{"projection", "max"}}, "projection is max"}}},
    {{"linformer"}, "frozen", {"0", "1"}, {{"features", "8"}, {"projection", "conv"}}, {}},
    {{"linformer"},
     "init_std",
     {"0", "0.5"},
     {{"features", "8"}},
     {{{{"projection", "mean"}}, "projection is mean"},
      {{{"projection", "max"}}, "projection is max"},
      {{{"projection", "conv"}}, "projection is conv"}}},
    {{"informer", "informer_mask"},
     "samples",
     {"1", "9"},
     {{"top", "5"}},
     {{{{"top", "5"}, {"measure", "exact"}}, "measure is exact"}}},
    {{"informer", "informer_mask"},
     "features",
     {"3", "16"},
     {{"samples", "5"}},
     {{{{"samples", "5"}, {"top", "6"}}, "samples is 5 and top is 6"},
      {{{"top", "6"}, {"measure", "exact"}}, "top is 6 and measure is exact"}}},
    {{"informer", "informer_mask"}, "features", {"3", "16"}, {{"measure", "exact"}}, {}},
    {{"skein_uniform", "skein_simplenorm", "skein_nonorm"},
     "pilot_gradient",
     {"true", "official"},
     {{"features", "12"}, {"keep_pilot", "1"}},
     {{{{"features", "12"}}, "keep_pilot is 0"}}},
    {{"skeinformer"}, "pilot_gradient", {"true", "official"}, {{"features", "12"}}, {}},
    {{"skyformer", "nystrom", "nystrom_sm"},
     "detach_start",
     {"0", "1"},
     {{"features", "5"}},
     {{{{"features", "5"}, {"inverse_steps", "20"}, {"inverse_backward", "implicit"}},
       "inverse_backward is implicit"}}},
    {{"synthesizer"},
     "rank",
     {"3", "4"},
     {},
     {{{{"logits", "dense"}}, "logits is dense"}, {{{"logits", "random"}}, "logits is random"}}},
    {{"synthesizer"},
     "hidden",
     {"3", "4"},
     {{"logits", "dense"}},
     {{{}, "logits is factorised"}, {{{"logits", "random"}}, "logits is random"}}},
    {{"synthesizer"},
     "shared",
     {"0", "1"},
     {{"logits", "dense"}},
     {{{}, "logits is factorised"}, {{{"logits", "random"}}, "logits is random"}}},
    {{"synthesizer"}, "trained", {"0", "1"}, {}, {{{{"logits", "dense"}}, "logits is dense"}}},
    {{"synthesizer"}, "trained", {"0", "1"}, {{"logits", "random"}}, {}},
    {{"sparse_transformer"},
     "summary",
     {"2", "3"},
     {{"stride", "8"}, {"heads", "interleaved"}},
     {{{{"stride", "8"}, {"heads", "interleaved"}, {"pattern", "strided"}}, "pattern is strided"},
      {{{"stride", "1"}, {"heads", "interleaved"}}, "stride is 1"}}},
    {{"local"}, "form", {"block", "sliding"}, {{"block", "6"}}, {{{{"block", "1"}}, "block is 1"}}},
    {{"local"},
     "form",
     {"official", "sliding"},
     {{"block", "6"}},
     {{{{"block", "1"}}, "block is 1"}}},
    {{"longformer"},
     "dilation",
     {"2", "1:3"},
     {{"window", "2"}},
     {{{{"window", "0"}}, "window is 0"}, {{{"window", "1"}}, "window is 1"}},
     1e-12},
    {{"bigbird"},
     "random_range",
     {"whole", "official"},
     {{"block", "4"}, {"random_blocks", "1"}},
     {{{{"block", "4"}, {"random_blocks", "0"}}, "random_blocks is 0"}}},
    {{"blockbert"},
     "head_counts",
     {"", "2"},
     {{"blocks", "2"}},
     {{{{"blocks", "1"}}, "blocks is 1"}}},
    {{"performer"},
     "detach_stabiliser",
     {"0", "1"},
     {{"features", "9"}, {"epsilon", "0.1"}},
     {{{{"features", "9"}, {"epsilon", "0"}}, "epsilon is 0"}}},
};

/// Calls f for every row and each of its methods.
template <class F> void each_row(const F& f) {
  for (const Row& row : kRows) {
    for (const char* method : row.methods) {
      INFO(method, ".", row.option);
      f(row, attention::find(method));
    }
  }
}

/// The numbers of a call with these options, forward and backward.
std::vector<std::vector<double>> numbers(const Spec& spec, const OptionValues& options) {
  const Sizes sizes;
  const Problem problem = make_problem(spec, sizes, Padding::mixed);
  const Layer layer = make_layer(spec, options, sizes, DType::f64);
  std::vector<std::vector<double>> all;
  for (const auto& [name, tensor] : run(layer, problem, training_call(problem.in))) {
    all.push_back(tensor.to_vector());
  }
  return all;
}

/// Returns whether both values of the row's option give the same, but for rounding where a row says
/// so.
bool same(const Row& row, const Spec& spec, OptionValues options) {
  const auto with = [&](const char* value) {
    options[row.option] = value;
    return numbers(spec, options);
  };
  const auto close = [&](double x, double y) { return std::abs(x - y) <= row.rounding; };
  return std::ranges::equal(
      with(row.values.first), with(row.values.second),
      [&](const auto& x, const auto& y) { return std::ranges::equal(x, y, close); });
}

}  // namespace

TEST_CASE("an option without effect names the values of the others that leave it none") {
  each_row([](const Row& row, const Spec& spec) {
    CHECK(spec.idle_because(row.option, row.acts).empty());
    for (const auto& [options, why] : row.idle) {
      std::string named = spec.name + "." + why;
      const std::size_t second = named.find(" and ");
      if (second != std::string::npos) named.insert(second + 5, spec.name + ".");
      CHECK(spec.idle_because(row.option, options) == named);
    }
  });
}

TEST_CASE("an option that is said to be without effect changes nothing, elsewhere it does") {
  each_row([](const Row& row, const Spec& spec) {
    CHECK_FALSE(same(row, spec, row.acts));
    for (const auto& idle : row.idle) {
      CAPTURE(idle.second);
      CHECK(same(row, spec, idle.first));
    }
  });
}

TEST_CASE("only options of the table are without effect in a method's own samples") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    for (const attention::OptionInfo& option : spec.options) {
      if (spec.idle_because(option.key, options).empty()) continue;
      CAPTURE(option.key);
      CHECK(std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) {
        return row.option == option.key &&
               std::count(row.methods.begin(), row.methods.end(), spec.name) > 0;
      }));
    }
  });
}

TEST_CASE("every option changes something, in a sample of its method or in a row of the table") {
  const std::set<std::string> elsewhere = {
      "nystrom.inverse_backward",  // no inverse of means converges: tested with Skyformer's
      "nystrom_sm.solver",         // exact has no gradient: nystrom_test.cpp
      "cosformer.epsilon",         // few rows are below it: cosformer_test.cpp
      "routing.decay",             // the step reads it: routing_test.cpp
  };
  for (const Spec& spec : attention::registry()) {
    for (const attention::OptionInfo& option : spec.options) {
      const std::string name = spec.name + "." + option.key;
      const bool in_table = std::ranges::any_of(kRows, [&](const Row& row) {
        return row.option == option.key && std::ranges::count(row.methods, spec.name) > 0;
      });
      const bool in_samples = std::ranges::any_of(spec.samples, [&](const OptionValues& with) {
        OptionValues without = with;
        return without.erase(option.key) > 0 && numbers(spec, with) != numbers(spec, without);
      });
      CHECK_MESSAGE((in_table || in_samples || elsewhere.contains(name)), name,
                    ": no setting of Spec::samples has a value that changes the result");
    }
  }
}

TEST_CASE("to ask about an option that a method does not have is an error") {
  CHECK_THROWS_WITH_AS((void)attention::find("vmean").idle_because("features", {}),
                       doctest::Contains("vmean: no option is called 'features'"), Error);
}

}  // namespace skytape::test
