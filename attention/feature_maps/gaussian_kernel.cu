// Kernel products on the GPU: which form runs, its arrays, and the sum over the chunks of rows.
#include <cstdint>

#include "attention/feature_maps/gaussian_kernel_cuda.hpp"
#include "attention/feature_maps/gaussian_kernel_plan.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {
namespace kernel_cuda {
namespace {

/// Adds up what the chunks of rows gave to the landmarks, in order.
struct AddChunks {
  const float *dw_parts, *cu_parts;       // [G, chunks, L, D], [G, chunks, L, P]
  float *dw, *cu;                         // [G, L, D], [G, L, P]
  std::int64_t chunks, dw_size, cu_size;  // entries of a head
  std::int64_t dw_count;                  // of all heads

  __device__ void operator()(std::int64_t i) const {
    const bool first = i < dw_count;
    const std::int64_t at = first ? i : i - dw_count, size = first ? dw_size : cu_size;
    const float* const parts =
        (first ? dw_parts : cu_parts) + at / size * chunks * size + at % size;
    float sum = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += parts[chunk * size];
    (first ? dw : cu)[at] = sum;
  }
};

/// Results of a call; undefined where its form has none.
struct Results {
  Tensor dx, cy;  // [G, N, D], [G, N, P]
  Tensor dw, cu;  // [G, L, D], [G, L, P]
};

Sizes sizes_of(const KernelInputs& in, std::int64_t factor) {
  const std::int64_t n = in.x.size(1);
  return {in.x.size(0), n,          in.w.size(1), in.x.size(2), factor, ceil_div(n, kChunkRows),
          in.sharing,   in.gaussian};
}

RowFactors factors_of(const FactorsInMemory& f) {
  if (!f.mask.defined()) return {};
  return {f.mask.data<float>(), static_cast<float>(f.scale)};
}

/// One pass over the rows, and one over the chunks' parts where there are several.
void run(Form form, const KernelInputs& in, const Tensor& u, const Tensor& y, const Results& r) {
  const std::int64_t factor = (u.defined() ? u : y).size(2);
  const Sizes s = sizes_of(in, factor);
  const auto parts_of = [&](const Tensor& result) {
    if (s.chunks == 1 || !result.defined()) return result;
    const Shape shape{s.heads, s.chunks, s.landmarks, result.size(2)};
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const auto data = [](const Tensor& x) { return x.data_or_null<float>(); };
  const Tensor dw = parts_of(r.dw), cu = parts_of(r.cu);  // [G, chunks, L, D or P]
  const Arrays a{data(in.x),          data(in.w),         data(u),  data(y),
                 data(r.dx),          data(r.cy),         data(dw), data(cu),
                 factors_of(in.of_x), factors_of(in.of_u)};
  if (precision(Device::cuda) == Precision::fp32) {
    fp32_form(form, s, a);
  } else {
    tensor_core_form(form, s, a);
  }
  if (s.chunks == 1 || form == Form::times) return;
  const std::int64_t dw_count = r.dw.defined() ? r.dw.numel() : 0;
  const std::int64_t cu_count = r.cu.defined() ? r.cu.numel() : 0;
  if (dw_count + cu_count == 0) return;
  cuda::map(dw_count + cu_count, AddChunks{data(dw), data(cu), data(r.dw), data(r.cu), s.chunks,
                                           s.landmarks * s.width, s.landmarks * factor, dw_count});
}

}  // namespace
}  // namespace kernel_cuda

bool fused_has_room_on(Cuda, std::int64_t width, std::int64_t factor) {
  const bool fp32 = precision(Device::cuda) == Precision::fp32;
  return cuda::has_shared(fp32 ? kernel_cuda::fp32_bytes(width, factor)
                               : kernel_cuda::tensor_core_bytes(width, factor));
}

void kernel_times_on(Cuda, const KernelInputs& in, const Tensor& y, Tensor& out) {
  using namespace kernel_cuda;
  if (!in.fused) return kernel_times_whole(in, y, out);
  run(Form::times, in, {}, y, {{}, out, {}, {}});
}

void kernel_transposed_times_on(Cuda, const KernelInputs& in, const Tensor& u, Tensor& out) {
  using namespace kernel_cuda;
  if (!in.fused) return kernel_transposed_times_whole(in, u, out);
  run(Form::transposed, in, u, {}, {{}, {}, {}, out});
}

void kernel_form_backward_on(Cuda, const KernelInputs& in, const Tensor& u, const Tensor& y,
                             FormGradients& d) {
  using namespace kernel_cuda;
  if (!in.fused) return kernel_form_backward_whole(in, u, y, d);
  const Form form = d.du.defined() ? Form::backward_du : Form::backward_dy;
  run(form, in, u, y, {d.dx, d.du, d.dw, d.dy});
}

}  // namespace skytape::attention
