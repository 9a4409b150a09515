// Stands in for CUPTI's header of this name: records of kernels, copies and fills, under CUPTI's
// names and with CUPTI's meaning.
#pragma once

#include <cstddef>
#include <cstdint>

#define CUPTI_API_VERSION 130001
#define CUPTIAPI

enum CUptiResult {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39
};
CUptiResult cuptiGetResultString(CUptiResult result, const char** text);

enum CUpti_ActivityKind {
  CUPTI_ACTIVITY_KIND_MEMCPY = 1,
  CUPTI_ACTIVITY_KIND_MEMSET = 2,
  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10
};
inline constexpr std::uint32_t CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1;
inline constexpr std::uint8_t CUPTI_ACTIVITY_MEMCPY_KIND_DTOD = 8;

// Records. What the project reads of them, in one layout for all: the simulator's buffers hold
// pieces of one size.
struct CUpti_Activity {
  CUpti_ActivityKind kind;
  std::uint8_t copyKind;
  std::uint16_t registersPerThread;
  std::uint64_t start, end;
  std::int32_t gridX, gridY, gridZ, blockX, blockY, blockZ;
  std::int32_t staticSharedMemory, dynamicSharedMemory;
  const char* name;
};
struct CUpti_ActivityKernel10 : CUpti_Activity {};
struct CUpti_ActivityMemcpy6 : CUpti_Activity {};
struct CUpti_ActivityMemset4 : CUpti_Activity {};

using CUcontext = struct CUctx_st*;
using CUpti_BuffersCallbackRequestFunc = void (*)(std::uint8_t** buffer, std::size_t* size,
                                                  std::size_t* most_records);
using CUpti_BuffersCallbackCompleteFunc = void (*)(CUcontext context, std::uint32_t stream,
                                                   std::uint8_t* buffer, std::size_t size,
                                                   std::size_t valid_size);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete);
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityFlushAll(std::uint32_t flag);
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid_size,
                                       CUpti_Activity** record);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, std::uint32_t stream,
                                              std::size_t* dropped);
