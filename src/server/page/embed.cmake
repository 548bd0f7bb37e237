# Writes a C++ file with the files of the page as strings of the program, each also compressed where gzip is found.
#   cmake -DFOLDER=assets -DOUTPUT=FILE [-DGZIP=/usr/bin/gzip] -P embed.cmake
file(GLOB paths ${FOLDER}/*)
list(SORT paths)
set(types html text/html css text/css js text/javascript svg image/svg+xml webmanifest application/manifest+json)

# The bytes of a file as a string literal, each byte escaped, with their number.
function(literal path out)
  file(READ ${path} hex HEX)
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "(..)" "\\\\x\\1" escaped "${hex}")
  set(${out} "std::string_view(\"${escaped}\", ${length})" PARENT_SCOPE)
endfunction()

set(rows "")
foreach(path ${paths})
  get_filename_component(name ${path} NAME)
  string(REGEX REPLACE ".*\\." "" extension ${name})
  list(FIND types ${extension} at)
  if(at LESS 0)
    message(FATAL_ERROR "${name}: no content type is known for .${extension}")
  endif()
  math(EXPR at "${at} + 1")
  list(GET types ${at} type)
  if(type MATCHES "^text/")
    set(type "${type}; charset=utf-8")
  endif()
  file(SHA256 ${path} digest)
  string(SUBSTRING ${digest} 0 16 digest)
  literal(${path} bytes)
  set(compressed "std::string_view()")
  if(GZIP)
    execute_process(COMMAND ${GZIP} -9 -n -c ${path} OUTPUT_FILE ${OUTPUT}.gz COMMAND_ERROR_IS_FATAL ANY)
    literal(${OUTPUT}.gz compressed)
    file(REMOVE ${OUTPUT}.gz)
  endif()
  string(APPEND rows "    {\"${name}\", \"${type}\", \"W/\\\"${digest}\\\"\", ${bytes}, ${compressed}},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"server/page/page_files.h\"

namespace sluice {
namespace {
constexpr PageFile kFiles[] = {
${rows}};
}  // namespace
std::span<const PageFile> page_files() {
  return kFiles;
}
}  // namespace sluice
")
