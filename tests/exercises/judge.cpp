#include "tests/exercises/judge.hpp"

#include <algorithm>
#include <cstdio>
#include <random>
#include <stdexcept>

namespace skytape::exercises {
namespace {

double tolerance = 1e-6;  // gradcheck's, on |got - expected| / (1 + |expected|)

int largest_rows = 0, largest_columns = 0;  // of the matrices made
long used = 0;                              // entries read or written

bool close(double got, double expected) {
  return std::abs(got - expected) <= tolerance * (1 + std::abs(expected)) || got == expected;
}

bool close(const Matrix& got, const Matrix& expected) {
  if (got.rows != expected.rows || got.columns != expected.columns) return false;
  for (int i = 0; i < got.rows; ++i) {
    for (int j = 0; j < got.columns; ++j) {
      if (!close(got(i, j), expected(i, j))) return false;
    }
  }
  return true;
}

std::string number(double x) {
  if (std::isnan(x)) return "nan";  // printf may give it a sign
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}

template <class F> Matrix each(const char* name, const Matrix& a, const Matrix& b, const F& f) {
  if (a.rows != b.rows || a.columns != b.columns) {
    throw std::invalid_argument("a " + std::string(name) + " of " + a.shape() + " and " +
                                b.shape() + ": both need one shape");
  }
  Matrix y(a.rows, a.columns);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.columns; ++j) y(i, j) = f(a(i, j), b(i, j));
  }
  return y;
}

/// "(04_softmax_backward.cpp, line 33)"
std::string in_brackets(const Place& at) {
  const std::string file = at.file_name();
  return "(" + file.substr(file.rfind('/') + 1) + ", line " + std::to_string(at.line()) + ")";
}

/// The numbers of a matrix with one row or one column, as far as they are right those of
/// `expected`.
std::string numbers(const Matrix& got, const Matrix& expected) {
  std::string text;
  for (int i = 0; i < got.rows; ++i) {
    for (int j = 0; j < got.columns; ++j) {
      const bool right = close(got(i, j), expected(i, j));
      text += (text.empty() ? "" : " ") + number(right ? expected(i, j) : got(i, j));
    }
  }
  return text;
}

/// Says what the wrong numbers have in common; empty where nothing was found.
std::string pattern(const std::string& what, const Matrix& got, const Matrix& expected) {
  if (got.rows != expected.rows || got.columns != expected.columns) return {};
  const Matrix zero(expected.rows, expected.columns);
  if (close(expected, zero)) return {};
  if (close(got, zero)) return what + " is zero everywhere. ";
  if (close(got, -1 * expected)) return "All of " + what + " has the opposite sign. ";
  if (got.rows == got.columns && close(got, transpose(expected))) {
    return what + " is the transpose of what it should be. ";
  }
  int i = 0, j = 0;  // the largest number tells the factor
  for (int e = 0; e < expected.rows * expected.columns; ++e) {
    const int r = e / expected.columns, c = e % expected.columns;
    if (std::abs(expected(r, c)) > std::abs(expected(i, j))) i = r, j = c;
  }
  const double factor = got(i, j) / expected(i, j);
  if (std::isfinite(factor) && close(got, factor * expected)) {
    return "All of " + what + " is " + number(factor) +
           " times what it should be: a factor, not a term. ";
  }
  return {};
}

/// Says what is wrong with `got`: of a list all numbers, of a table the first that is; empty where
/// nothing is.
std::string difference(const std::string& what, const Matrix& got, const Matrix& expected) {
  if (got.rows != expected.rows || got.columns != expected.columns) {
    return what + " has shape " + got.shape() + ", expected " + expected.shape() + ". ";
  }
  std::string first;
  int wrong = 0;
  for (int i = 0; i < got.rows; ++i) {
    for (int j = 0; j < got.columns; ++j) {
      if (close(got(i, j), expected(i, j))) continue;
      if (++wrong == 1) {
        first = what + "[" + std::to_string(i) + ", " + std::to_string(j) + "] is " +
                number(got(i, j)) + ", expected " + number(expected(i, j));
      }
    }
  }
  if (wrong == 0) return {};
  const int all = got.rows * got.columns;
  if (all > 1 && all <= 12 && (got.rows == 1 || got.columns == 1)) {
    return what + ": " + numbers(got, expected) + ", expected " + numbers(expected, expected) +
           ". ";
  }
  return first + " (" + std::to_string(wrong) + " of " + std::to_string(all) +
         (all == 1 ? " number is wrong). " : " numbers are wrong). ");
}

}  // namespace

// ---- matrices -----------------------------------------------------------------------------------
Matrix::Matrix(int r, int c, double value)
    : rows(r), columns(c), numbers_(static_cast<std::size_t>(r) * c, value) {
  if (rows * columns > largest_rows * largest_columns) {
    largest_rows = rows;
    largest_columns = columns;
  }
}

Matrix::Matrix(std::initializer_list<std::initializer_list<double>> list)
    : Matrix(static_cast<int>(list.size()), static_cast<int>(list.begin()->size())) {
  auto to = numbers_.begin();
  for (const auto& row : list) to = std::copy(row.begin(), row.end(), to);
}

std::string Matrix::shape() const {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

std::size_t Matrix::index(int i, int j, const Place& at) const {
  if (i < 0 || i >= rows || j < 0 || j >= columns) {
    const char* const empty = "; it is empty: make it first, Matrix(rows, columns)";
    throw std::out_of_range("index (" + std::to_string(i) + ", " + std::to_string(j) +
                            ") in a matrix " + shape() + " " + in_brackets(at) +
                            (rows * columns == 0 ? empty : ""));
  }
  ++used;
  return static_cast<std::size_t>(i) * columns + j;
}

Matrix matmul(const Matrix& a, const Matrix& b, const Place& at) {
  if (a.columns != b.rows) {
    throw std::invalid_argument("matmul of " + a.shape() + " and " + b.shape() +
                                ": the inner sizes " + std::to_string(a.columns) + " and " +
                                std::to_string(b.rows) + " differ " + in_brackets(at));
  }
  Matrix y(a.rows, b.columns);
  for (int i = 0; i < a.rows; ++i) {
    for (int k = 0; k < a.columns; ++k) {
      for (int j = 0; j < b.columns; ++j) y(i, j) += a(i, k) * b(k, j);
    }
  }
  return y;
}

Matrix transpose(const Matrix& a) {
  Matrix y(a.columns, a.rows);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.columns; ++j) y(j, i) = a(i, j);
  }
  return y;
}

Matrix operator+(const Matrix& a, const Matrix& b) {
  return each("sum", a, b, [](double x, double y) { return x + y; });
}
Matrix operator-(const Matrix& a, const Matrix& b) {
  return each("difference", a, b, [](double x, double y) { return x - y; });
}
Matrix operator*(double factor, const Matrix& a) {
  return each("product", a, a, [factor](double x, double) { return factor * x; });
}

Matrix identity(int n) {
  Matrix y(n, n);
  for (int i = 0; i < n; ++i) y(i, i) = 1;
  return y;
}

Matrix softmax(const Matrix& x) {
  Matrix y(x.rows, x.columns);
  for (int i = 0; i < x.rows; ++i) {
    double maximum = x(i, 0), sum = 0;
    for (int j = 1; j < x.columns; ++j) maximum = std::max(maximum, x(i, j));
    for (int j = 0; j < x.columns; ++j) sum += y(i, j) = std::exp(x(i, j) - maximum);
    for (int j = 0; j < x.columns; ++j) y(i, j) /= sum;
  }
  return y;
}

Matrix random_matrix(int rows, int columns, unsigned seed) {
  std::mt19937 engine(seed);
  Matrix y(rows, columns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) y(i, j) = std::ldexp(engine(), -31) - 1;
  }
  return y;
}

Matrix largest_made() {
  Matrix largest;
  largest.rows = largest_rows;
  largest.columns = largest_columns;
  return largest;
}
long entries_used() { return used; }
void count_anew() {
  largest_rows = largest_columns = 0;
  used = 0;
}

// ---- the judge ----------------------------------------------------------------------------------
void write_here(const Place& at) {
  const std::string function = at.function_name();
  const std::string name = function.substr(0, function.find('('));
  throw ToDo{name.substr(name.find_last_of(" :") + 1) + ", line " + std::to_string(at.line())};
}

void Judge::passed() {
  std::printf("  right  %s\n", property_.c_str());
  std::fflush(stdout);
  ++right_;
}

std::string Judge::mistake(const Matrix& got, const std::vector<Mistake>& usual) {
  for (const Mistake& mistake : usual) {
    if (close(got, mistake.answer)) return mistake.sentence;
  }
  return {};
}

void Judge::same(const std::string& what, const Matrix& got, const Matrix& expected,
                 const std::string& why, const std::vector<Mistake>& usual) {
  const std::string text = difference(what, got, expected);
  if (text.empty()) return passed();
  const std::string known = mistake(got, usual);
  throw Wrong{property_, text + (known.empty() ? pattern(what, got, expected) + why : known)};
}

void Judge::same(const std::string& what, double got, double expected, const std::string& why,
                 const std::vector<std::pair<double, std::string>>& usual) {
  if (close(got, expected)) return passed();
  const std::string text = what + " is " + number(got) + ", expected " + number(expected) + ". ";
  for (const auto& [answer, sentence] : usual) {
    if (close(got, answer)) throw Wrong{property_, text + sentence};
  }
  throw Wrong{property_, text + why};
}

void Judge::tolerate(double error) { tolerance = error; }

void Judge::holds(bool it_does, const std::string& why) {
  if (!it_does) throw Wrong{property_, why};
  passed();
}

int judge(const std::function<void(Judge&)>& look) {
  Judge judge;
  Wrong wrong;
  try {
    look(judge);
    std::printf("All %d right.\n", judge.right());
    return 0;
  } catch (const ToDo& left) {
    std::printf("  TO DO: %s\n", left.text.c_str());
    return 1;
  } catch (const Wrong& found) {
    wrong = found;
  } catch (const std::exception& error) {
    wrong = {judge.property(), std::string("Your code threw: ") + error.what() + ". "};
  } catch (...) {
    wrong = {judge.property(), "Your code threw what is no std::exception, as in throw \"text\"."};
  }
  std::printf("  WRONG  %s\n", wrong.property.c_str());
  // Lines of at most 92 characters, below the property.
  std::string line;
  for (std::size_t at = 0; at < wrong.text.size();) {
    const std::size_t end = std::min(wrong.text.find(' ', at), wrong.text.size());
    if (line.size() + end - at > 90) std::printf("         %s\n", std::exchange(line, {}).c_str());
    if (end > at) line += (line.empty() ? "" : " ") + wrong.text.substr(at, end - at);
    at = end + 1;
  }
  std::printf("         %s\n", line.c_str());
  return 1;
}

}  // namespace skytape::exercises
