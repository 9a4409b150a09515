// The test program: doctest with a summary whose last line is "N passed, N failed".
#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/support/doctest.hpp"

#include <iostream>

#include "tests/support/devices.hpp"

namespace {

/// Test cases that ran and that failed. Doctest's own number of cases counts those that --first and
/// --last leave out.
struct Counts {
  unsigned ran = 0, failed = 0;
};
Counts& counts() {
  static Counts all;
  return all;
}

struct Listener : doctest::IReporter {
  explicit Listener(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    counts().failed = stats.numTestCasesFailed;
  }
  void test_case_start(const doctest::TestCaseData& data) override {
    ++counts().ran;
    skytape::test::begin_case(data.m_name);
  }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

}  // namespace

REGISTER_LISTENER("summary", 1, Listener);

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  int status = context.run();
  if (context.shouldExit()) return status;  // --help, --list-test-cases
  const auto [ran, failed] = counts();
  if (ran == 0) {
    std::cout << "no test case matches the filters\n";
    status = 1;
  }
  if (const int skipped = skytape::test::skipped_cuda_cases(); skipped > 0) {
    std::cout << skipped << " CUDA cases skipped: no GPU answers\n";
  }
  std::cout << ran - failed << " passed, " << failed << " failed\n";
  return status;
}
