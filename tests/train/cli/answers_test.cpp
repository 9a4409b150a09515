// Answers of a trained model, as a person would ask for them: each depends on its text alone, comes
// at once, and is refused where the scores are not finite.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "tests/train/cli/shop.hpp"
#include "train/formats/safetensors.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

/// Rows of texts in which both words stand, so that a model is not sure of itself.
std::string mixed_rows(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    std::string words;
    for (int j = 0; j < 1 + i * 5 % 7; ++j)
      words += (i * i + j * (i % 3 + 1)) % 5 < 2 ? " green" : " nasty";
    rows += (i % 2 ? "ham\t" : "spam\t") + words.substr(1) + "\n";
  }
  return rows;
}

/// Labels and scores, a row each, without the first line, which names the columns.
Lines scores_in(const std::string& out) {
  Lines lines = lines_of(out);
  if (!lines.empty()) lines.erase(lines.begin());
  return lines;
}

/// Returns whether two rows of probabilities are equal but for rounding, and so are their labels,
/// unless the two largest are as close as that.
bool equal_but_for_rounding(const std::string& a, const std::string& b) {
  constexpr double kRounding = 1e-5;
  std::istringstream x(a), y(b);
  std::string label, other;
  x >> label;
  y >> other;
  std::vector<double> all;
  for (double p = 0, q = 0; x >> p && y >> q; all.push_back(p)) {
    if (std::abs(p - q) > kRounding) return false;
  }
  std::sort(all.rbegin(), all.rend());
  return label == other || all.at(0) - all.at(1) <= 2 * kRounding;
}

/// A program that reads a pipe and writes another, as a co-process does.
class Conversation {
 public:
  explicit Conversation(std::vector<std::string> arguments) {
    int there[2], back[2];
    REQUIRE(::pipe(there) == 0);
    REQUIRE(::pipe(back) == 0);
    arguments.insert(arguments.begin(), program_path());
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(there[0], STDIN_FILENO);
      ::dup2(back[1], STDOUT_FILENO);
      for (const int end : {there[0], there[1], back[0], back[1]}) ::close(end);
      std::vector<char*> pointers;
      for (std::string& argument : arguments) pointers.push_back(argument.data());
      pointers.push_back(nullptr);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    ::close(there[0]);
    ::close(back[1]);
    to_ = there[1];
    from_ = back[0];
  }
  ~Conversation() {
    ::close(to_);
    ::close(from_);
    ::waitpid(child_, nullptr, 0);
  }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  void say(const std::string& text) const {
    REQUIRE(::write(to_, text.data(), text.size()) == std::ssize(text));
  }
  /// The next line; empty if none comes within a minute.
  [[nodiscard]] std::string hear() const {
    std::string line;
    for (char c = 0; c != '\n';) {
      constexpr int kPatience = 60'000;  // milliseconds
      pollfd input{from_, POLLIN, 0};
      if (::poll(&input, 1, kPatience) != 1 || ::read(from_, &c, 1) != 1) return "";
      if (c != '\n') line += c;
    }
    return line;
  }

 private:
  pid_t child_ = 0;
  int to_ = 0, from_ = 0;
};

}  // namespace

TEST_CASE("what is said of a text depends on the text alone, and eval says the same") {
  if (!program_or_skip()) return;
  const Shop shop;
  for (const char* split : {"train", "dev", "test"}) {
    shop.folder.write(std::string("own/") + split + ".tsv", mixed_rows(90));
  }
  REQUIRE(shop.prepare_from(shop.folder.path() / "own").code == 0);
  for (const char* method : {"skyformer", "skeinformer", "reformer"}) {
    CAPTURE(method);
    Lines flags = {"--attention", method};
    if (flags[1].starts_with("sk")) flags.insert(flags.end(), {"--features", "2"});
    const Finished trained = shop.train({"ngrams=0"}, "60", flags);
    CAPTURE(trained.err);
    REQUIRE(trained.code == 0);

    Lines rows = lines_of(mixed_rows(90));
    const Lines whole = scores_in(shop.predict_rows(mixed_rows(90), {"--scores"}).out);
    REQUIRE(whole.size() == rows.size());
    std::string backwards;
    for (std::size_t i = rows.size(); i-- > 0;) backwards += rows[i] + "\n";
    Lines turned = scores_in(shop.predict_rows(backwards, {"--scores"}).out);
    std::reverse(turned.begin(), turned.end());
    const Lines single = scores_in(
        shop.predict_rows(mixed_rows(90), {"--scores", "--batch", "1", "--threads", "2"}).out);
    REQUIRE(turned.size() == rows.size());
    REQUIRE(single.size() == rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(rows[i]);
      CHECK(equal_but_for_rounding(whole[i], turned[i]));
      CHECK(equal_but_for_rounding(whole[i], single[i]));
    }
    std::string same;
    for (int i = 0; i < 40; ++i) same += "green nasty nasty green nasty\n";
    const Lines forty = scores_in(shop.predict_rows(same, {"--scores"}).out);
    REQUIRE(forty.size() == 40);
    for (const std::string& row : forty) CHECK(equal_but_for_rounding(row, forty.at(0)));

    for (const char* draws : {"1", "3"}) {
      CAPTURE(draws);
      const Finished eval =
          shop.finish({"eval", "--run", shop.run, "--draws", draws, "--device", "cpu"});
      const Finished said = shop.predict_rows(mixed_rows(90), {"--draws", draws});
      CAPTURE(eval.out);
      CAPTURE(said.err);
      const auto accuracy = [](const std::string& text) {
        const std::size_t at = text.find("accuracy ");
        REQUIRE(at != text.npos);
        return text.substr(at, text.find(" %", at) - at);
      };
      CHECK(accuracy(eval.out) == accuracy(said.err));
      CHECK(contains(said.err, "mean of 3 draws") == (std::string(draws) == "3"));
      CHECK(contains(eval.out, "mean of 3 draws") == (std::string(draws) == "3"));
    }
  }
}

TEST_CASE("an answer follows its line at once, so that predict serves as a co-process") {
  if (!program_or_skip()) return;
  const Shop shop;
  shop.trained();
  Lines arguments = {"predict",  "--run", shop.run,    "--from", "-",
                     "--device", "cpu",   "--threads", "1"};
  SUBCASE("without a word about batches") {}
  SUBCASE("one at a time") { arguments.insert(arguments.end(), {"--batch", "1"}); }
  const Conversation predict(arguments);
  for (int turn = 0; turn < 3; ++turn) {
    predict.say("nasty nasty nasty\n");
    CHECK(predict.hear() == "spam");
    predict.say("green green green\nnas");  // the rest of the second line comes later
    CHECK(predict.hear() == "ham");
    predict.say("ty nasty\n");
    CHECK(predict.hear() == "spam");
  }
}

TEST_CASE("what is not finite is no class: predict and eval name the text and exit with 4") {
  if (!program_or_skip()) return;
  const Shop shop;
  shop.trained();
  const auto best = std::filesystem::path(shop.run) / "best.safetensors";
  train::SafetensorsFile file = train::read_safetensors(best);
  for (auto& [name, tensor] : file.tensors) {  // the byte 'x' alone has a broken embedding
    if (name == "model.embeddings.word_embeddings.weight") {
      tensor['x' + 1].fill(std::numeric_limits<double>::quiet_NaN());
    }
  }
  train::write_safetensors(best, file.tensors, file.metadata);
  const Finished f = shop.predict_rows("green green\nnasty nasty\nmaximal\ngreen\n", {"--scores"});
  CAPTURE(f.out);
  CAPTURE(f.err);
  CHECK(f.code == 4);
  CHECK(scores_in(f.out).size() == 2);
  CHECK(contains(f.err, "rows.tsv:3: "));
  CHECK(contains(f.err, "not finite"));

  for (auto& [name, tensor] : file.tensors) {
    if (name.ends_with("W_q.weight")) tensor.fill(std::numeric_limits<double>::infinity());
  }
  train::write_safetensors(best, file.tensors, file.metadata);
  const Finished eval = shop.finish({"eval", "--run", shop.run, "--device", "cpu"});
  CAPTURE(eval.out);
  CAPTURE(eval.err);
  CHECK(eval.code == 4);
  CHECK(contains(eval.err, "test: example 1: "));
}
