# sluice_library(NAME DEPS a b EXTERNAL X::X)
#
# Makes the library `sluice_NAME` from the *.cpp files of the calling folder, and the test program `NAME_test` from its
# *_test.cpp files. DEPS are the folders whose headers it may include (they are transitive, as tools/check_layers.py
# enforces); EXTERNAL are third-party targets that stay private to this library.
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;EXTERNAL;TEST_EXTERNAL;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  file(GLOB nested CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/*.cpp)
  set(tests ${sources} ${nested})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(APPEND sources ${nested})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  foreach(path ${ARG_EXCLUDE})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${path})
  endforeach()

  set(deps ${ARG_DEPS})
  list(TRANSFORM deps PREPEND sluice_)
  if(sources)
    add_library(sluice_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(sluice_${name} PRIVATE ${ARG_EXTERNAL})
  else()
    add_library(sluice_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(sluice_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(sluice_${name} ${scope} ${deps})

  if(SLUICE_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE sluice_${name} GTest::gmock GTest::gtest_main
                          ${ARG_EXTERNAL} ${ARG_TEST_EXTERNAL})
    # Only the files that name it: a compiler cache keeps the others for every checkout.
    foreach(test ${tests})
      file(STRINGS ${test} uses REGEX SLUICE_SOURCE_DIR LIMIT_COUNT 1)
      if(uses)
        set_property(SOURCE ${test} APPEND PROPERTY COMPILE_DEFINITIONS SLUICE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
      endif()
    endforeach()
    gtest_discover_tests(${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES
                         DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 900)
  endif()
endfunction()
