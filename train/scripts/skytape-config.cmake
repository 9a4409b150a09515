# What find_package(skytape) reads. `make install` puts it into <prefix>/lib/cmake/skytape, with the
# lines that begin with set(): what this build of the library was compiled and linked with.
get_filename_component(_skytape_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET skytape::skytape)
  add_library(skytape::skytape STATIC IMPORTED)
  set_target_properties(skytape::skytape PROPERTIES
    IMPORTED_LOCATION "${_skytape_prefix}/lib/libskytape.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_skytape_prefix}/include/skytape"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_COMPILE_OPTIONS "-fopenmp;${_skytape_definitions}"
    INTERFACE_LINK_LIBRARIES "-fopenmp;${_skytape_libraries}")
endif()
unset(_skytape_prefix)
unset(_skytape_definitions)
unset(_skytape_libraries)
