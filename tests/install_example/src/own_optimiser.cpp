// An optimiser of your own on parameters of your own: gradient descent with momentum fits a small
// network to sin x, as nn::AdamW does from the same start. And a derivative that gives a gradient
// of the wrong shape, caught.
#include <cmath>
#include <iostream>
#include <vector>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "nn/optimizer.hpp"
#include "tensor/kernels/elementwise.hpp"

using namespace skytape;

namespace {

constexpr std::int64_t kPoints = 64, kHidden = 16;
constexpr int kSteps = 400;

/// y = W2 gelu(W1 x + b1) + b2. Parameters outlive the tapes that read them.
struct Network {
  ParameterStore store;
  Parameter& w1 = store.add("w1", {kHidden, 1}, normal_init(1.0));
  Parameter& b1 = store.add("b1", {kHidden}, normal_init(1.0));
  Parameter& w2 = store.add("w2", {1, kHidden}, normal_init(0.3));
  Parameter& b2 = store.add("b2", {1}, constant_init(0));

  Network() { store.pack(DType::f32, Device::cpu, /*seed=*/1); }

  Var operator()(Tape& tape, const Tensor& x) {  // x: [P, 1] -> [P, 1]
    const Var hidden = gelu(linear(tape.constant(x), tape.parameter(w1), tape.parameter(b1)));
    return linear(hidden, tape.parameter(w2), tape.parameter(b2));
  }
};

/// v = momentum v + g, θ = θ - lr v: on the store's flat buffers, all parameters at once.
class Momentum {
 public:
  Momentum(ParameterStore& store, double lr, double momentum)
      : store_(store),
        lr_(lr),
        momentum_(momentum),
        velocity_(Tensor::zeros({store.trainable_size()}, DType::f32, Device::cpu)) {}

  void step() {
    velocity_ = tensor::affine(velocity_, momentum_);
    tensor::accumulate(velocity_, store_.gradients());
    Tensor values = store_.values().slice(0, store_.trainable_size());  // shares their memory
    tensor::accumulate(values, velocity_, -lr_);
  }

 private:
  ParameterStore& store_;
  double lr_, momentum_;
  Tensor velocity_;  // [trainable_size]
};

/// Mean square error after kSteps steps.
template <class Optimiser> double fit(Network& network, Optimiser optimiser) {
  std::vector<double> at, wanted;
  for (int i = 0; i < kPoints; ++i) {
    at.push_back(-3 + 6.0 * i / (kPoints - 1));
    wanted.push_back(std::sin(at.back()));
  }
  const Tensor x = Tensor::from(at, {kPoints, 1}, DType::f32, Device::cpu);
  const Tensor y = Tensor::from(wanted, {kPoints, 1}, DType::f32, Device::cpu);
  double loss_now = 0;
  for (int step = 0; step < kSteps; ++step) {
    network.store.zero_gradients();
    Tape tape;
    const Var error = network(tape, x) - tape.constant(y);           // [P, 1]
    const Var loss = affine(sum_all(square(error)), 1.0 / kPoints);  // one number
    loss_now = loss.value().to_vector()[0];
    tape.backward(loss);
    optimiser.step();
  }
  return loss_now;
}

/// Twice x, whose author forgot that dx has the shape of x.
Var twice(Var x) {
  return record("twice", {x}, tensor::affine(x.value(), 2),
                [](const Tensor& dy, Grads& g) { g.add(0, dy.reshape({dy.numel()})); });
}

bool wrong_gradient_is_caught() {
  Tape tape;
  const Var x = tape.input(Tensor::zeros({2, 3}, DType::f32, Device::cpu));
  try {
    tape.backward(sum_all(twice(x)));
  } catch (const GradientError& error) {
    std::cout << "caught: " << error.what() << "\n";
    return true;
  }
  return false;
}

}  // namespace

int main() {
  Network first, second;
  const double momentum = fit(first, Momentum(first.store, 0.02, 0.9));
  const double adamw =
      fit(second, nn::AdamW(second.store, {}, nn::Schedule{0.02, kSteps, kSteps / 10}));
  std::cout << "mean square error after " << kSteps << " steps: momentum " << momentum << ", AdamW "
            << adamw << "\n";
  const bool learned = momentum < 0.01 && adamw < 0.01;
  return learned && wrong_gradient_is_caught() ? 0 : 1;
}
