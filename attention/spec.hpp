// The row of a method in the registry: everything that the rest of the program knows about it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/call.hpp"
#include "attention/cost.hpp"
#include "attention/options.hpp"

namespace skytape::attention {

class Method;

/// A setting in which a method must equal another one, for the registry-driven test.
struct Exact {
  std::string when;    // in words: "landmarks = all rows"
  std::string equals;  // "softmax" or "kernelized"
  OptionValues options;
  std::function<Draws(const Inputs&)> draws;  // what to inject (may be empty)
  double tolerance = 1e-10;                   // relative, f64
};

struct Spec {
  // Every method says these.
  std::string name;                   // as in methods.def
  std::string paper;                  // paper and equation
  std::string idea;                   // one line
  std::string cost;                   // leading forward multiply-adds per head
  std::string memory;                 // beyond q, k, v, out; arrays [N, D] first: "2 N D + …"
  std::vector<OptionValues> samples;  // settings that tests run, the default among them
  std::vector<OptionInfo> options;    // keys, defaults, ranges, meanings
  std::function<std::unique_ptr<Method>(const LayerContext&, const OptionValues&)> make;
  /// Returns why an option changes nothing, given the values of the others: "synthesizer.logits is
  /// dense". Empty if it does something.
  std::function<std::string(std::string_view key, const OptionValues&)> idle_because;
  /// The multiply-adds of all matrix products on a CPU, every term; with them a test compares what
  /// was counted once.
  std::function<Cost(const CostSizes&)> cost_at;

  // Traits: what differs from the usual method.
  std::string approximates = "softmax";  // the exact attention that it stands for: "softmax",
                                         // "kernelized", "shared_qk"; empty: for none
  bool shared_qk = false;                // takes no W_k: queries serve as keys
  bool values_only = false;              // neither queries nor keys enter: W_q, W_k stay untrained
  bool reads_x = false;                  // sees the layer's input, too (Inputs::x)
  bool carries_state = false;            // hands a state to the next layer (Result::state)
  bool random = false;                   // draws anew at every call
  bool by_rows = false;        // makes an n x n matrix, some rows at a time: launches grow with n^2
  bool reads_padding = false;  // padded positions enter the result: batches are not trimmed
  bool per_example = true;     // false: how much an example may use, its budget, depends on the
                               // shortest one of the batch (Call::fewest_tokens)
  std::vector<Exact> exact;    // empty: never
  std::string sequential = "O(1)";  // operations that must wait for one another, as Linformer's
                                    // Table 1 counts them

  // Optional formulas.
  /// The cost where Method::combine_rows gives something at default options; empty: nowhere.
  std::function<CombinedCost(const CostSizes&, double columns)> combined_cost_at;
  /// Forward multiply-adds as the Skeinformer paper's Table 3 states them; empty: not in it.
  std::function<double(const CostSizes&)> paper_cost;

  [[nodiscard]] bool has_option(std::string_view key) const;
};

}  // namespace skytape::attention
