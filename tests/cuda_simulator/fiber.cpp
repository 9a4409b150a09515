#include "tests/cuda_simulator/fiber.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <new>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "the CUDA simulator switches stacks in x86-64 assembly"
#endif

// Saves what a function call must preserve, changes stacks and returns there.
extern "C" void cuda_simulator_switch(void** stopped_at, void* continue_at);
asm(R"(
.text
.globl cuda_simulator_switch
.type cuda_simulator_switch, @function
cuda_simulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_simulator_switch, .-cuda_simulator_switch
)");

namespace skytape::cuda_simulator {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;  // committed as they are touched
constexpr std::size_t kGuardBytes = 4096;

}  // namespace

Fiber this_thread() {
  Fiber fiber;
  pthread_attr_t attributes;
  pthread_getattr_np(::pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &fiber.bottom, &fiber.size);
  pthread_attr_destroy(&attributes);
  return fiber;
}

Fiber make_fiber(std::size_t number) {
  void* const memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || ::mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    throw std::bad_alloc();
  }
  Fiber fiber;
  fiber.bottom = memory;
  // Tops of stacks at one distance would fall into the same few cache lines of every way.
  fiber.size = kStackBytes - number % 61 * 320;
  return fiber;
}

void free_fiber(Fiber& fiber) { ::munmap(fiber.bottom, kStackBytes); }

void start_fiber(Fiber& fiber, std::size_t number, void (*main)()) {
  fiber.size = kStackBytes - number % 61 * 320;
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(fiber.bottom) + kGuardBytes,
                              kStackBytes - kGuardBytes);
  fiber.fake_stack = nullptr;
#endif
  auto** top = reinterpret_cast<void**>(static_cast<char*>(fiber.bottom) + fiber.size);
  *--top = nullptr;  // main "was called" from here: its stack is 8 bytes off 16
  *--top = reinterpret_cast<void*>(main);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  fiber.stopped_at = top;
}

void switch_fiber(Fiber& from, Fiber& to) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
#endif
  cuda_simulator_switch(&from.stopped_at, to.stopped_at);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void entered_fiber() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

}  // namespace skytape::cuda_simulator
