// The language of ListOps: generator, evaluator, official text.
#include "data/tasks/listops.hpp"

#include <algorithm>
#include <numeric>

#include "data/files/source.hpp"
#include "data/random.hpp"

namespace skytape::data {
namespace {

// The official generator's parameters. Its constant "value probability" is actually the probability
// of an operator.
constexpr int kMaxDepth = 10;
constexpr uint32_t kMaxArguments = 10;
constexpr size_t kMinLength = 500;   // exclusive
constexpr size_t kMaxLength = 2000;  // exclusive
constexpr double kOperatorProbability = 0.25;

/// Draws one tree, depth first. Arguments are drawn before the operator that takes them.
class TreeBuilder {
 public:
  TreeBuilder(Stream stream, std::vector<uint8_t>& tokens) : stream_(stream), tokens_(tokens) {}

  /// Appends a node and returns its value; meaningless once the tree is too long, which ends it.
  int node(int depth) {
    if (tokens_.size() >= kMaxLength) return 0;
    if (depth >= kMaxDepth || stream_.uniform() > kOperatorProbability) {
      const auto digit = static_cast<uint8_t>(stream_.below(10));
      tokens_.push_back(kListOpsDigit0 + digit);
      return digit;
    }
    const int count = 2 + static_cast<int>(stream_.below(kMaxArguments - 1));
    const size_t slot = tokens_.size();
    tokens_.push_back(0);
    int arguments[kMaxArguments];
    for (int i = 0; i < count; ++i) arguments[i] = node(depth + 1);
    tokens_[slot] = static_cast<uint8_t>(kListOpsMin + stream_.below(4));
    tokens_.push_back(kListOpsClose);
    return apply(tokens_[slot], {arguments, static_cast<size_t>(count)});
  }

 private:
  static int apply(uint8_t operation, std::span<int> arguments) {
    std::sort(arguments.begin(), arguments.end());
    const size_t half = arguments.size() / 2;
    switch (operation) {
      case kListOpsMin:
        return arguments.front();
      case kListOpsMax:
        return arguments.back();
      case kListOpsMed:  // mean of the middle two if their number is even, rounded down
        return arguments.size() % 2 ? arguments[half] : (arguments[half - 1] + arguments[half]) / 2;
      default:
        return std::accumulate(arguments.begin(), arguments.end(), 0) % 10;
    }
  }

  Stream stream_;
  std::vector<uint8_t>& tokens_;
};

constexpr bool is_digit(uint8_t token) {
  return token >= kListOpsDigit0 && token < kListOpsDigit0 + 10;
}
constexpr bool is_operator(uint8_t token) { return token >= kListOpsMin && token <= kListOpsSum; }

constexpr std::string_view kWords[] = {"",  "0", "1", "2",    "3",    "4",    "5",   "6",
                                       "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]"};

/// Token of a word; 0 for round brackets, -1 for anything unknown.
int token_of(std::string_view word) {
  if (word.size() == 1) {
    if (word[0] >= '0' && word[0] <= '9') return kListOpsDigit0 + (word[0] - '0');
    if (word[0] == '(' || word[0] == ')') return 0;
  }
  for (int token = kListOpsMin; token <= kListOpsClose; ++token) {
    if (word == kWords[token]) return token;
  }
  return -1;
}

}  // namespace

bool draw_listops(uint64_t seed, uint64_t attempt, ListOpsSample& sample) {
  sample.tokens.clear();
  TreeBuilder tree(Stream(seed, Purpose::listops, attempt), sample.tokens);
  sample.label = tree.node(1);
  return sample.tokens.size() > kMinLength && sample.tokens.size() < kMaxLength;
}

std::optional<int> evaluate_listops(std::span<const uint8_t> tokens) {
  struct Open {
    uint8_t operation;
    int count[10];  // how often each digit occurs among the arguments so far
    int arguments;
  };
  std::vector<Open> open;
  for (size_t i = 0; i < tokens.size(); ++i) {
    int value = 0;
    if (is_operator(tokens[i])) {
      open.push_back({tokens[i], {}, 0});
      continue;
    }
    if (is_digit(tokens[i])) {
      value = tokens[i] - kListOpsDigit0;
    } else {
      if (tokens[i] != kListOpsClose || open.empty() || open.back().arguments == 0) return {};
      const Open& list = open.back();
      const auto nth = [&list](int n) {  // n-th smallest argument
        int digit = 0;
        for (int seen = list.count[0]; seen <= n; seen += list.count[++digit]) {
        }
        return digit;
      };
      switch (list.operation) {
        case kListOpsMin:
          value = nth(0);
          break;
        case kListOpsMax:
          value = nth(list.arguments - 1);
          break;
        case kListOpsMed:
          value = (nth((list.arguments - 1) / 2) + nth(list.arguments / 2)) / 2;
          break;
        default:
          for (int digit = 0; digit < 10; ++digit) value += digit * list.count[digit];
          value %= 10;
      }
      open.pop_back();
    }
    if (open.empty()) return i + 1 == tokens.size() ? std::optional(value) : std::nullopt;
    ++open.back().count[value];
    ++open.back().arguments;
  }
  return {};
}

std::string listops_text(std::span<const uint8_t> tokens) {
  std::vector<int> arguments(tokens.size());  // of the operator at each position
  std::vector<size_t> open;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool closes = tokens[i] == kListOpsClose;
    if (closes && !open.empty()) open.pop_back();
    if (!closes && !open.empty()) ++arguments[open.back()];
    if (is_operator(tokens[i])) open.push_back(i);
  }
  std::string text;
  size_t depth = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += ' ';
    if (is_operator(tokens[i])) {
      for (int k = 0; k <= arguments[i]; ++k) text += "( ";  // one pair per argument and for `]`
      ++depth;
    }
    text += kWords[tokens[i] & 15];
    if (tokens[i] == kListOpsClose) text += " )", --depth;
    if (!is_operator(tokens[i]) && depth > 0) text += " )";
  }
  return text;
}

std::string_view parse_listops(std::string_view text, std::vector<uint8_t>& tokens) {
  for (const std::string_view word : split(text, ' ')) {
    const int token = word.empty() ? 0 : token_of(word);
    if (token < 0) return word;
    if (token > 0) tokens.push_back(static_cast<uint8_t>(token));
  }
  return {};
}

}  // namespace skytape::data
