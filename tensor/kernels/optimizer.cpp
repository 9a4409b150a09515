#include "tensor/kernels/optimizer.hpp"

#include "tensor/core/on_device.hpp"

namespace skytape::tensor {

void adamw_step(Tensor& values, const Tensor& gradients, Tensor& m, Tensor& v, std::int64_t begin,
                std::int64_t end, const Tensor& hyper, double clip_value, double weight_decay,
                double beta2, double epsilon) {
  require_same_kind("adamw_step", {&values, &gradients, &m, &v});
  ENSURE(0 <= begin && begin <= end, "adamw_step: bad range [", begin, ", ", end, ")");
  for (const Tensor* t : std::initializer_list<const Tensor*>{&values, &gradients, &m, &v}) {
    ENSURE(end <= t->numel(), "adamw_step: range [", begin, ", ", end, ") of values ", values,
           ", gradients ", gradients, ", m ", m, ", v ", v);
  }
  ENSURE(hyper.defined() && hyper.dtype() == DType::f64 && hyper.numel() == 4 &&
             hyper.device() == values.device(),
         "adamw_step: expected hyper f64[4]@", name(values.device()), ", got ", hyper);
  ENSURE(beta2 >= 0 && beta2 < 1 && epsilon > 0 && weight_decay >= 0 && clip_value >= 0,
         "adamw_step: expected beta2 in [0, 1), epsilon > 0, weight_decay, clip_value >= 0, got ",
         beta2, ", ", epsilon, ", ", weight_decay, ", ", clip_value);
  const AdamwStep step{begin, end, hyper.data<double>(), clip_value, weight_decay, beta2, epsilon};
  on_device(values.device(), [&](auto tag) { adamw_on(tag, step, values, gradients, m, v); });
}

}  // namespace skytape::tensor
