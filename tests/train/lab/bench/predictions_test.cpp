#include "train/lab/bench/predictions.hpp"

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "train/lab/bench/roofline.hpp"
#include "train/process/version.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;

namespace {

BenchCase small_case(const char* method) {
  BenchCase c;
  c.attention = method;
  c.n = 64;
  c.batch = 3;
  c.features = 8;
  return c;
}

}  // namespace

TEST_CASE("predictions come back from their file as they were counted, for each precision") {
  const Folder folder;
  const auto path = folder.path() / "predicted.json";
  Predictions counted;
  counted.add(small_case("vmean"));
  counted.add(small_case("skyformer"));
  counted.write(path);
  const Predictions read(path);
  for (const char* method : {"vmean", "skyformer"}) {
    BenchCase c = small_case(method);
    for (const char* precision : {"fp32", "tf32", "bf16"}) {
      c.precision = precision;
      const double want = 1e3 * predict(step_kernels(c), {}, precision).seconds;
      REQUIRE(read.ms(c).has_value());
      CHECK(*read.ms(c) == doctest::Approx(want).epsilon(1e-12));
    }
  }
  for (const auto& change :
       {+[](BenchCase& c) { c.n = 65; }, +[](BenchCase& c) { c.batch = 4; },
        +[](BenchCase& c) { c.features = 9; }, +[](BenchCase& c) { c.attention = "softmax"; }}) {
    BenchCase other = small_case("skyformer");
    change(other);
    CHECK_FALSE(read.ms(other).has_value());
  }
  CHECK_FALSE(Predictions().ms(small_case("vmean")).has_value());
}

TEST_CASE("predictions of another revision, or broken ones, are refused with the file's name") {
  const Folder folder;
  const auto refused = [&](const std::string& text) {
    const auto path = folder.write("predicted.json", text);
    const std::string error = error_of<DataError>([&] { (void)Predictions(path); });
    CHECK(error.find("predicted.json: ") != error.npos);
    return error;
  };
  CHECK(refused(R"({"revision": "of old", "steps": []})").find("\"of old\", expected \"") !=
        std::string::npos);
  CHECK(refused(R"({"steps": []})").find("revision null") != std::string::npos);
  CHECK(refused(R"({"revision": ")" + revision() + R"("})").find("no array 'steps'") !=
        std::string::npos);
  CHECK(refused("[").find("not a JSON object") != std::string::npos);
}
