// The matrices that an exercise is written with, and its judge. An exercise needs no other header.
#pragma once

#include <cmath>
#include <functional>
#include <initializer_list>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace skytape::exercises {

/// Where a student wrote something; the judge says its line.
using Place = std::source_location;

/// Numbers in rows and columns. An index outside throws, and says which, and in which line.
class Matrix {
 public:
  int rows = 0, columns = 0;

  Matrix() = default;
  Matrix(int r, int c, double value = 0);
  /// Row by row: Matrix({{1, 2}, {3, 4}}).
  explicit Matrix(std::initializer_list<std::initializer_list<double>> list);

  double& operator()(int i, int j, const Place& at = Place::current()) {
    return numbers_[index(i, j, at)];
  }
  double operator()(int i, int j, const Place& at = Place::current()) const {
    return numbers_[index(i, j, at)];
  }
  [[nodiscard]] std::string shape() const;  ///< "[2, 3]"

 private:
  [[nodiscard]] std::size_t index(int i, int j, const Place& at) const;
  std::vector<double> numbers_;
};

// Each throws where shapes do not fit, and says which.
[[nodiscard]] Matrix matmul(const Matrix& a, const Matrix& b, const Place& at = Place::current());
[[nodiscard]] Matrix transpose(const Matrix& a);
[[nodiscard]] Matrix operator+(const Matrix& a, const Matrix& b);
[[nodiscard]] Matrix operator-(const Matrix& a, const Matrix& b);
[[nodiscard]] Matrix operator*(double factor, const Matrix& a);
[[nodiscard]] Matrix identity(int n);
/// Each row's exp(x) / sum of exp(x).
[[nodiscard]] Matrix softmax(const Matrix& x);

/// Stands where you are to write; the judge then says the function and the line.
[[noreturn]] void write_here(const Place& at = Place::current());

// ---- for judges ---------------------------------------------------------------------------------

/// Uniform numbers in [-1, 1), the same at each call.
[[nodiscard]] Matrix random_matrix(int rows, int columns, unsigned seed = 1);

/// Shape of the largest matrix that was made since count_anew(); it has no numbers.
[[nodiscard]] Matrix largest_made();
/// How often an entry of a matrix was read or written since count_anew(), by matmul, too.
[[nodiscard]] long entries_used();
void count_anew();

/// An answer with a usual mistake in it, and what to say to whoever made it.
struct Mistake {
  Matrix answer;
  std::string sentence;
};

using Matrices = std::vector<Matrix>;
using Forward = std::function<Matrix(const Matrices& inputs)>;
/// From the inputs and dy, the gradient of forward's result, to one gradient for each input.
using Backward = std::function<Matrices(const Matrices& inputs, const Matrix& dy)>;

/// Looks at an answer, the simplest property first. The first thing that is wrong ends it.
class Judge {
 public:
  /// Names the property that is looked at from now on, until the next one is named. It stands
  /// before the student's code is called, so that an error which that throws is told with the
  /// property: j.asks("from [1, 3]: a sum over rows").same("db", sum_to_shape(dy, 1, 3), …).
  Judge& asks(const std::string& property) {
    property_ = property;
    return *this;
  }

  /// `got` has the shape and the numbers of `expected`. `what` names what is compared ("dx"),
  /// `why` says what to think about when it is not right.
  void same(const std::string& what, const Matrix& got, const Matrix& expected,
            const std::string& why, const std::vector<Mistake>& usual = {});
  void same(const std::string& what, double got, double expected, const std::string& why,
            const std::vector<std::pair<double, std::string>>& usual = {});
  void holds(bool it_does, const std::string& why);
  /// The gradients of all inputs are those of the library's gradcheck, which moves each number of
  /// each input by a little. `usual` has backward functions with a usual mistake.
  void gradients(const Forward& forward, const Backward& backward, const Matrices& inputs,
                 const std::vector<std::string>& names, const std::string& why,
                 const std::vector<std::pair<Backward, std::string>>& usual = {});

  /// The sentence of the usual mistake that `got` is; empty where it is none.
  [[nodiscard]] static std::string mistake(const Matrix& got, const std::vector<Mistake>& usual);

  /// From now on numbers may be so far apart, |got - expected| / (1 + |expected|); 1e-6 at first.
  static void tolerate(double error);

  [[nodiscard]] int right() const { return right_; }
  [[nodiscard]] const std::string& property() const { return property_; }

 private:
  void passed();
  std::string property_ = "it runs";
  int right_ = 0;
};

/// gradcheck's own table for an op with this forward and backward, which `passed` sums up.
[[nodiscard]] std::string gradcheck_table(const Forward& forward, const Backward& backward,
                                          const Matrices& inputs,
                                          const std::vector<std::string>& names, bool& passed);

/// The judge throws it where an answer is wrong.
struct Wrong {
  std::string property, text;
};

/// write_here() throws it, or who calls it: the function and the line that are to be written.
struct ToDo {
  std::string text;
};

/// Runs a judge and prints what it says; the program's exit status.
int judge(const std::function<void(Judge&)>& look);

}  // namespace skytape::exercises
