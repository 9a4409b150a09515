// The judge's gradients: an answer becomes an op on a tape, which the library's gradcheck looks at.
#include "autograd/gradcheck.hpp"
#include "tests/exercises/judge.hpp"

namespace skytape::exercises {
namespace {

Tensor tensor_of(const Matrix& m) {
  std::vector<double> numbers;
  for (int i = 0; i < m.rows; ++i) {
    for (int j = 0; j < m.columns; ++j) numbers.push_back(m(i, j));
  }
  return Tensor::from(numbers, {m.rows, m.columns}, DType::f64, Device::cpu);
}

Matrix matrix_of(const Tensor& t) {
  const std::vector<double> numbers = t.to_vector();
  Matrix m(static_cast<int>(t.size(0)), static_cast<int>(t.size(1)));
  for (int e = 0; e < m.rows * m.columns; ++e) m(e / m.columns, e % m.columns) = numbers[e];
  return m;
}

double dot(const Matrix& a, const Matrix& b) {
  double sum = 0;
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.columns; ++j) sum += a(i, j) * b(i, j);
  }
  return sum;
}

/// dLoss/dinput for Loss = sum(forward dy), by central differences.
Matrix numeric(const Forward& forward, const Matrices& inputs, std::size_t which,
               const Matrix& dy) {
  constexpr double h = 1e-6;
  Matrix slopes(inputs[which].rows, inputs[which].columns);
  for (int i = 0; i < slopes.rows; ++i) {
    for (int j = 0; j < slopes.columns; ++j) {
      Matrices up = inputs, down = inputs;
      up[which](i, j) += h;
      down[which](i, j) -= h;
      slopes(i, j) = (dot(forward(up), dy) - dot(forward(down), dy)) / (2 * h);
    }
  }
  return slopes;
}

}  // namespace

std::string gradcheck_table(const Forward& forward, const Backward& backward,
                            const Matrices& inputs, const std::vector<std::string>& names,
                            bool& passed) {
  std::vector<Tensor> tensors;
  for (const Matrix& m : inputs) tensors.push_back(tensor_of(m));
  const auto op = [&](Tape& tape, std::span<const Var> x) {
    Matrices values;
    for (const Var& v : x) values.push_back(matrix_of(v.value()));
    return tape.record("op", x, tensor_of(forward(values)), [=](const Tensor& dy, Grads& g) {
      const Matrices found = backward(values, matrix_of(dy));
      for (std::size_t i = 0; i < found.size(); ++i)
        g.add(static_cast<int>(i), tensor_of(found[i]));
    });
  };
  const GradcheckReport report = gradcheck(op, tensors, {}, names);
  passed = report.passed;
  return report.to_string();
}

void Judge::gradients(const Forward& forward, const Backward& backward, const Matrices& inputs,
                      const std::vector<std::string>& names, const std::string& why,
                      const std::vector<std::pair<Backward, std::string>>& usual) {
  const std::string property = property_;
  const Matrix value = forward(inputs);
  const Matrix dy = random_matrix(value.rows, value.columns, 77);
  const Matrices found = backward(inputs, dy);
  // Gradients are compared in the order of the inputs, so that the first wrong number is said.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Mistake> mistakes;
    for (const auto& [wrong, sentence] : usual) {
      mistakes.push_back({wrong(inputs, dy).at(i), sentence});
    }
    asks(names[i] + ": " + property)
        .same(names[i], found.at(i), numeric(forward, inputs, i, dy), why, mistakes);
  }
  asks("gradcheck of the library agrees");
  bool passed = false;
  const std::string table = gradcheck_table(forward, backward, inputs, names, passed);
  holds(passed, why + " gradcheck says: " + table);
}

}  // namespace skytape::exercises
