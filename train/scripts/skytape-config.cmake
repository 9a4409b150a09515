# What find_package(skytape) reads: the target skytape::skytape is what pkg-config says of this prefix.
find_package(PkgConfig REQUIRED)
list(PREPEND CMAKE_PREFIX_PATH "${CMAKE_CURRENT_LIST_DIR}/../../..")
pkg_check_modules(SKYTAPE REQUIRED IMPORTED_TARGET skytape)
list(POP_FRONT CMAKE_PREFIX_PATH)
if(NOT TARGET skytape::skytape)
  add_library(skytape::skytape INTERFACE IMPORTED)
  target_link_libraries(skytape::skytape INTERFACE PkgConfig::SKYTAPE)
endif()
