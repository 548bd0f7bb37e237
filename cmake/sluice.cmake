# sluice_library(NAME [WINGS a b/c] DEPS x y [EXTERNAL X::X] [OPTIONS -Wno-x] [CUDA_ONLY wing/file.cpp] [EXCLUDE file.cpp])
#
# Makes the library `sluice_NAME` of the calling folder, and the test program `NAME_test`.
#   WINGS      subfolders of the library. Each is a target of its own, `sluice_NAME_WING`, whose objects the library
#              takes. What a wing may include is a row of tools/check_layers.py.
#   DEPS       libraries whose headers this one may include. They are transitive.
#   EXTERNAL   third-party targets. They stay private to this library.
#   OPTIONS    options of the C++ compiler for this library alone.
#   CUDA_ONLY  C++ files that are compiled only when SLUICE_CUDA is ON, as are all *.cu files.
#   EXCLUDE    files that belong to another target.
# Sources are the *.cpp of the folder and its wings; tests are their *_test.cpp and those of tests/.
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "WINGS;DEPS;EXTERNAL;OPTIONS;CUDA_ONLY;EXCLUDE" ${ARGN})
  set(deps ${ARG_DEPS})
  list(TRANSFORM deps PREPEND sluice_)
  sluice_sources("" sources tests)
  set(objects)
  foreach(wing ${ARG_WINGS})
    sluice_sources(${wing} wing_sources wing_tests)
    list(APPEND tests ${wing_tests})
    if(wing_sources)
      string(REPLACE "/" "_" target sluice_${name}_${wing})
      add_library(${target} OBJECT ${wing_sources})
      target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
      target_link_libraries(${target} PUBLIC ${deps} PRIVATE ${ARG_EXTERNAL})
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${ARG_OPTIONS}>)
      list(APPEND objects $<TARGET_OBJECTS:${target}>)
    endif()
  endforeach()

  if(sources OR objects)
    add_library(sluice_${name} STATIC ${sources} ${objects})
    set(scope PUBLIC)
    target_link_libraries(sluice_${name} PRIVATE ${ARG_EXTERNAL})
    target_compile_options(sluice_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${ARG_OPTIONS}>)
  else()
    add_library(sluice_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(sluice_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(sluice_${name} ${scope} ${deps})

  file(GLOB more_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/*_test.cpp)
  list(APPEND tests ${more_tests})
  if(SLUICE_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE sluice_${name} sluice_source_dir GTest::gmock GTest::gtest_main ${ARG_EXTERNAL})
    gtest_discover_tests(${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES
                         DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 900)
  endif()
endfunction()

# The sources and tests of one wing of the calling library, or of its own folder where `wing` is empty.
function(sluice_sources wing sources_out tests_out)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR})
  if(wing)
    string(APPEND folder /${wing})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  foreach(path ${ARG_EXCLUDE})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${path})
  endforeach()
  if(SLUICE_CUDA)
    file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.cu)
    list(APPEND sources ${kernels})
  else()
    foreach(path ${ARG_CUDA_ONLY})
      list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${path})
    endforeach()
  endif()
  set(${sources_out} ${sources} PARENT_SCOPE)
  set(${tests_out} ${tests} PARENT_SCOPE)
endfunction()
