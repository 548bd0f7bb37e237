// Generated from the Unicode character database (14.0) as Python 3.11 reads it; facts that utf8proc has no function for.
#pragma once

#include <cstdint>

namespace sluice::jinja {

struct CodeRange {
  std::uint32_t first, last;
};
struct CaseExpansion {
  std::uint32_t code;
  const char* text;  // UTF-8
};

// The zero of each run of ten decimal digits.
inline constexpr std::uint32_t kDecimalZeros[] = {
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6,
    0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40,
    0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136,
    0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0,
    0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
};

// Digits that are no decimals (str.isdigit).
inline constexpr CodeRange kOtherDigits[] = {
    {0xb2, 0xb3}, {0xb9, 0xb9}, {0x1369, 0x1371}, {0x19da, 0x19da}, {0x2070, 0x2070}, {0x2074, 0x2079}, {0x2080, 0x2089},
    {0x2460, 0x2468}, {0x2474, 0x247c}, {0x2488, 0x2490}, {0x24ea, 0x24ea}, {0x24f5, 0x24fd}, {0x24ff, 0x24ff}, {0x2776, 0x277e},
    {0x2780, 0x2788}, {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

// Numbers that are no digits (str.isnumeric).
inline constexpr CodeRange kOtherNumbers[] = {
    {0xbc, 0xbe}, {0x9f4, 0x9f9}, {0xb72, 0xb77}, {0xbf0, 0xbf2}, {0xc78, 0xc7e}, {0xd58, 0xd5e}, {0xd70, 0xd78},
    {0xf2a, 0xf33}, {0x1372, 0x137c}, {0x16ee, 0x16f0}, {0x17f0, 0x17f9}, {0x2150, 0x2182}, {0x2185, 0x2189}, {0x2469, 0x2473},
    {0x247d, 0x2487}, {0x2491, 0x249b}, {0x24eb, 0x24f4}, {0x24fe, 0x24fe}, {0x277f, 0x277f}, {0x2789, 0x2789}, {0x2793, 0x2793},
    {0x2cfd, 0x2cfd}, {0x3007, 0x3007}, {0x3021, 0x3029}, {0x3038, 0x303a}, {0x3192, 0x3195}, {0x3220, 0x3229}, {0x3248, 0x324f},
    {0x3251, 0x325f}, {0x3280, 0x3289}, {0x32b1, 0x32bf}, {0x3405, 0x3405}, {0x3483, 0x3483}, {0x382a, 0x382a}, {0x3b4d, 0x3b4d},
    {0x4e00, 0x4e00}, {0x4e03, 0x4e03}, {0x4e07, 0x4e07}, {0x4e09, 0x4e09}, {0x4e5d, 0x4e5d}, {0x4e8c, 0x4e8c}, {0x4e94, 0x4e94},
    {0x4e96, 0x4e96}, {0x4ebf, 0x4ec0}, {0x4edf, 0x4edf}, {0x4ee8, 0x4ee8}, {0x4f0d, 0x4f0d}, {0x4f70, 0x4f70}, {0x5104, 0x5104},
    {0x5146, 0x5146}, {0x5169, 0x5169}, {0x516b, 0x516b}, {0x516d, 0x516d}, {0x5341, 0x5341}, {0x5343, 0x5345}, {0x534c, 0x534c},
    {0x53c1, 0x53c4}, {0x56db, 0x56db}, {0x58f1, 0x58f1}, {0x58f9, 0x58f9}, {0x5e7a, 0x5e7a}, {0x5efe, 0x5eff}, {0x5f0c, 0x5f0e},
    {0x5f10, 0x5f10}, {0x62fe, 0x62fe}, {0x634c, 0x634c}, {0x67d2, 0x67d2}, {0x6f06, 0x6f06}, {0x7396, 0x7396}, {0x767e, 0x767e},
    {0x8086, 0x8086}, {0x842c, 0x842c}, {0x8cae, 0x8cae}, {0x8cb3, 0x8cb3}, {0x8d30, 0x8d30}, {0x9621, 0x9621}, {0x9646, 0x9646},
    {0x964c, 0x964c}, {0x9678, 0x9678}, {0x96f6, 0x96f6}, {0xa6e6, 0xa6ef}, {0xa830, 0xa835}, {0xf96b, 0xf96b}, {0xf973, 0xf973},
    {0xf978, 0xf978}, {0xf9b2, 0xf9b2}, {0xf9d1, 0xf9d1}, {0xf9d3, 0xf9d3}, {0xf9fd, 0xf9fd}, {0x10107, 0x10133}, {0x10140, 0x10178},
    {0x1018a, 0x1018b}, {0x102e1, 0x102fb}, {0x10320, 0x10323}, {0x10341, 0x10341}, {0x1034a, 0x1034a}, {0x103d1, 0x103d5}, {0x10858, 0x1085f},
    {0x10879, 0x1087f}, {0x108a7, 0x108af}, {0x108fb, 0x108ff}, {0x10916, 0x1091b}, {0x109bc, 0x109bd}, {0x109c0, 0x109cf}, {0x109d2, 0x109ff},
    {0x10a44, 0x10a48}, {0x10a7d, 0x10a7e}, {0x10a9d, 0x10a9f}, {0x10aeb, 0x10aef}, {0x10b58, 0x10b5f}, {0x10b78, 0x10b7f}, {0x10ba9, 0x10baf},
    {0x10cfa, 0x10cff}, {0x10e69, 0x10e7e}, {0x10f1d, 0x10f26}, {0x10f51, 0x10f54}, {0x10fc5, 0x10fcb}, {0x1105b, 0x11065}, {0x111e1, 0x111f4},
    {0x1173a, 0x1173b}, {0x118ea, 0x118f2}, {0x11c5a, 0x11c6c}, {0x11fc0, 0x11fd4}, {0x12400, 0x1246e}, {0x16b5b, 0x16b61}, {0x16e80, 0x16e96},
    {0x1d2e0, 0x1d2f3}, {0x1d360, 0x1d378}, {0x1e8c7, 0x1e8cf}, {0x1ec71, 0x1ecab}, {0x1ecad, 0x1ecaf}, {0x1ecb1, 0x1ecb4}, {0x1ed01, 0x1ed2d},
    {0x1ed2f, 0x1ed3d}, {0x1f10b, 0x1f10c}, {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200e2, 0x200e2}, {0x20121, 0x20121}, {0x2092a, 0x2092a},
    {0x20983, 0x20983}, {0x2098c, 0x2098c}, {0x2099c, 0x2099c}, {0x20aea, 0x20aea}, {0x20afd, 0x20afd}, {0x20b19, 0x20b19}, {0x22390, 0x22390},
    {0x22998, 0x22998}, {0x23b1b, 0x23b1b}, {0x2626d, 0x2626d}, {0x2f890, 0x2f890},
};

// Code points whose upper form is longer than one.
inline constexpr CaseExpansion kUpperExpansions[] = {
    {0xdf, "SS"}, {0x149, "\xca""\xbc""N"}, {0x1f0, "J\xcc""\x8c"},
    {0x390, "\xce""\x99""\xcc""\x88""\xcc""\x81"}, {0x3b0, "\xce""\xa5""\xcc""\x88""\xcc""\x81"}, {0x587, "\xd4""\xb5""\xd5""\x92"},
    {0x1e96, "H\xcc""\xb1"}, {0x1e97, "T\xcc""\x88"}, {0x1e98, "W\xcc""\x8a"},
    {0x1e99, "Y\xcc""\x8a"}, {0x1e9a, "A\xca""\xbe"}, {0x1f50, "\xce""\xa5""\xcc""\x93"},
    {0x1f52, "\xce""\xa5""\xcc""\x93""\xcc""\x80"}, {0x1f54, "\xce""\xa5""\xcc""\x93""\xcc""\x81"}, {0x1f56, "\xce""\xa5""\xcc""\x93""\xcd""\x82"},
    {0x1f80, "\xe1""\xbc""\x88""\xce""\x99"}, {0x1f81, "\xe1""\xbc""\x89""\xce""\x99"}, {0x1f82, "\xe1""\xbc""\x8a""\xce""\x99"},
    {0x1f83, "\xe1""\xbc""\x8b""\xce""\x99"}, {0x1f84, "\xe1""\xbc""\x8c""\xce""\x99"}, {0x1f85, "\xe1""\xbc""\x8d""\xce""\x99"},
    {0x1f86, "\xe1""\xbc""\x8e""\xce""\x99"}, {0x1f87, "\xe1""\xbc""\x8f""\xce""\x99"}, {0x1f88, "\xe1""\xbc""\x88""\xce""\x99"},
    {0x1f89, "\xe1""\xbc""\x89""\xce""\x99"}, {0x1f8a, "\xe1""\xbc""\x8a""\xce""\x99"}, {0x1f8b, "\xe1""\xbc""\x8b""\xce""\x99"},
    {0x1f8c, "\xe1""\xbc""\x8c""\xce""\x99"}, {0x1f8d, "\xe1""\xbc""\x8d""\xce""\x99"}, {0x1f8e, "\xe1""\xbc""\x8e""\xce""\x99"},
    {0x1f8f, "\xe1""\xbc""\x8f""\xce""\x99"}, {0x1f90, "\xe1""\xbc""\xa8""\xce""\x99"}, {0x1f91, "\xe1""\xbc""\xa9""\xce""\x99"},
    {0x1f92, "\xe1""\xbc""\xaa""\xce""\x99"}, {0x1f93, "\xe1""\xbc""\xab""\xce""\x99"}, {0x1f94, "\xe1""\xbc""\xac""\xce""\x99"},
    {0x1f95, "\xe1""\xbc""\xad""\xce""\x99"}, {0x1f96, "\xe1""\xbc""\xae""\xce""\x99"}, {0x1f97, "\xe1""\xbc""\xaf""\xce""\x99"},
    {0x1f98, "\xe1""\xbc""\xa8""\xce""\x99"}, {0x1f99, "\xe1""\xbc""\xa9""\xce""\x99"}, {0x1f9a, "\xe1""\xbc""\xaa""\xce""\x99"},
    {0x1f9b, "\xe1""\xbc""\xab""\xce""\x99"}, {0x1f9c, "\xe1""\xbc""\xac""\xce""\x99"}, {0x1f9d, "\xe1""\xbc""\xad""\xce""\x99"},
    {0x1f9e, "\xe1""\xbc""\xae""\xce""\x99"}, {0x1f9f, "\xe1""\xbc""\xaf""\xce""\x99"}, {0x1fa0, "\xe1""\xbd""\xa8""\xce""\x99"},
    {0x1fa1, "\xe1""\xbd""\xa9""\xce""\x99"}, {0x1fa2, "\xe1""\xbd""\xaa""\xce""\x99"}, {0x1fa3, "\xe1""\xbd""\xab""\xce""\x99"},
    {0x1fa4, "\xe1""\xbd""\xac""\xce""\x99"}, {0x1fa5, "\xe1""\xbd""\xad""\xce""\x99"}, {0x1fa6, "\xe1""\xbd""\xae""\xce""\x99"},
    {0x1fa7, "\xe1""\xbd""\xaf""\xce""\x99"}, {0x1fa8, "\xe1""\xbd""\xa8""\xce""\x99"}, {0x1fa9, "\xe1""\xbd""\xa9""\xce""\x99"},
    {0x1faa, "\xe1""\xbd""\xaa""\xce""\x99"}, {0x1fab, "\xe1""\xbd""\xab""\xce""\x99"}, {0x1fac, "\xe1""\xbd""\xac""\xce""\x99"},
    {0x1fad, "\xe1""\xbd""\xad""\xce""\x99"}, {0x1fae, "\xe1""\xbd""\xae""\xce""\x99"}, {0x1faf, "\xe1""\xbd""\xaf""\xce""\x99"},
    {0x1fb2, "\xe1""\xbe""\xba""\xce""\x99"}, {0x1fb3, "\xce""\x91""\xce""\x99"}, {0x1fb4, "\xce""\x86""\xce""\x99"},
    {0x1fb6, "\xce""\x91""\xcd""\x82"}, {0x1fb7, "\xce""\x91""\xcd""\x82""\xce""\x99"}, {0x1fbc, "\xce""\x91""\xce""\x99"},
    {0x1fc2, "\xe1""\xbf""\x8a""\xce""\x99"}, {0x1fc3, "\xce""\x97""\xce""\x99"}, {0x1fc4, "\xce""\x89""\xce""\x99"},
    {0x1fc6, "\xce""\x97""\xcd""\x82"}, {0x1fc7, "\xce""\x97""\xcd""\x82""\xce""\x99"}, {0x1fcc, "\xce""\x97""\xce""\x99"},
    {0x1fd2, "\xce""\x99""\xcc""\x88""\xcc""\x80"}, {0x1fd3, "\xce""\x99""\xcc""\x88""\xcc""\x81"}, {0x1fd6, "\xce""\x99""\xcd""\x82"},
    {0x1fd7, "\xce""\x99""\xcc""\x88""\xcd""\x82"}, {0x1fe2, "\xce""\xa5""\xcc""\x88""\xcc""\x80"}, {0x1fe3, "\xce""\xa5""\xcc""\x88""\xcc""\x81"},
    {0x1fe4, "\xce""\xa1""\xcc""\x93"}, {0x1fe6, "\xce""\xa5""\xcd""\x82"}, {0x1fe7, "\xce""\xa5""\xcc""\x88""\xcd""\x82"},
    {0x1ff2, "\xe1""\xbf""\xba""\xce""\x99"}, {0x1ff3, "\xce""\xa9""\xce""\x99"}, {0x1ff4, "\xce""\x8f""\xce""\x99"},
    {0x1ff6, "\xce""\xa9""\xcd""\x82"}, {0x1ff7, "\xce""\xa9""\xcd""\x82""\xce""\x99"}, {0x1ffc, "\xce""\xa9""\xce""\x99"},
    {0xfb00, "FF"}, {0xfb01, "FI"}, {0xfb02, "FL"},
    {0xfb03, "FFI"}, {0xfb04, "FFL"}, {0xfb05, "ST"},
    {0xfb06, "ST"}, {0xfb13, "\xd5""\x84""\xd5""\x86"}, {0xfb14, "\xd5""\x84""\xd4""\xb5"},
    {0xfb15, "\xd5""\x84""\xd4""\xbb"}, {0xfb16, "\xd5""\x8e""\xd5""\x86"}, {0xfb17, "\xd5""\x84""\xd4""\xbd"},
};

// Code points whose title form is longer than one.
inline constexpr CaseExpansion kTitleExpansions[] = {
    {0xdf, "Ss"}, {0x149, "\xca""\xbc""N"}, {0x1f0, "J\xcc""\x8c"},
    {0x390, "\xce""\x99""\xcc""\x88""\xcc""\x81"}, {0x3b0, "\xce""\xa5""\xcc""\x88""\xcc""\x81"}, {0x587, "\xd4""\xb5""\xd6""\x82"},
    {0x1e96, "H\xcc""\xb1"}, {0x1e97, "T\xcc""\x88"}, {0x1e98, "W\xcc""\x8a"},
    {0x1e99, "Y\xcc""\x8a"}, {0x1e9a, "A\xca""\xbe"}, {0x1f50, "\xce""\xa5""\xcc""\x93"},
    {0x1f52, "\xce""\xa5""\xcc""\x93""\xcc""\x80"}, {0x1f54, "\xce""\xa5""\xcc""\x93""\xcc""\x81"}, {0x1f56, "\xce""\xa5""\xcc""\x93""\xcd""\x82"},
    {0x1fb2, "\xe1""\xbe""\xba""\xcd""\x85"}, {0x1fb4, "\xce""\x86""\xcd""\x85"}, {0x1fb6, "\xce""\x91""\xcd""\x82"},
    {0x1fb7, "\xce""\x91""\xcd""\x82""\xcd""\x85"}, {0x1fc2, "\xe1""\xbf""\x8a""\xcd""\x85"}, {0x1fc4, "\xce""\x89""\xcd""\x85"},
    {0x1fc6, "\xce""\x97""\xcd""\x82"}, {0x1fc7, "\xce""\x97""\xcd""\x82""\xcd""\x85"}, {0x1fd2, "\xce""\x99""\xcc""\x88""\xcc""\x80"},
    {0x1fd3, "\xce""\x99""\xcc""\x88""\xcc""\x81"}, {0x1fd6, "\xce""\x99""\xcd""\x82"}, {0x1fd7, "\xce""\x99""\xcc""\x88""\xcd""\x82"},
    {0x1fe2, "\xce""\xa5""\xcc""\x88""\xcc""\x80"}, {0x1fe3, "\xce""\xa5""\xcc""\x88""\xcc""\x81"}, {0x1fe4, "\xce""\xa1""\xcc""\x93"},
    {0x1fe6, "\xce""\xa5""\xcd""\x82"}, {0x1fe7, "\xce""\xa5""\xcc""\x88""\xcd""\x82"}, {0x1ff2, "\xe1""\xbf""\xba""\xcd""\x85"},
    {0x1ff4, "\xce""\x8f""\xcd""\x85"}, {0x1ff6, "\xce""\xa9""\xcd""\x82"}, {0x1ff7, "\xce""\xa9""\xcd""\x82""\xcd""\x85"},
    {0xfb00, "Ff"}, {0xfb01, "Fi"}, {0xfb02, "Fl"},
    {0xfb03, "Ffi"}, {0xfb04, "Ffl"}, {0xfb05, "St"},
    {0xfb06, "St"}, {0xfb13, "\xd5""\x84""\xd5""\xb6"}, {0xfb14, "\xd5""\x84""\xd5""\xa5"},
    {0xfb15, "\xd5""\x84""\xd5""\xab"}, {0xfb16, "\xd5""\x8e""\xd5""\xb6"}, {0xfb17, "\xd5""\x84""\xd5""\xad"},
};

// Code points whose casefold form is longer than one.
inline constexpr CaseExpansion kFoldExpansions[] = {
    {0xdf, "ss"}, {0x130, "i\xcc""\x87"}, {0x149, "\xca""\xbc""n"},
    {0x1f0, "j\xcc""\x8c"}, {0x390, "\xce""\xb9""\xcc""\x88""\xcc""\x81"}, {0x3b0, "\xcf""\x85""\xcc""\x88""\xcc""\x81"},
    {0x587, "\xd5""\xa5""\xd6""\x82"}, {0x1e96, "h\xcc""\xb1"}, {0x1e97, "t\xcc""\x88"},
    {0x1e98, "w\xcc""\x8a"}, {0x1e99, "y\xcc""\x8a"}, {0x1e9a, "a\xca""\xbe"},
    {0x1e9e, "ss"}, {0x1f50, "\xcf""\x85""\xcc""\x93"}, {0x1f52, "\xcf""\x85""\xcc""\x93""\xcc""\x80"},
    {0x1f54, "\xcf""\x85""\xcc""\x93""\xcc""\x81"}, {0x1f56, "\xcf""\x85""\xcc""\x93""\xcd""\x82"}, {0x1f80, "\xe1""\xbc""\x80""\xce""\xb9"},
    {0x1f81, "\xe1""\xbc""\x81""\xce""\xb9"}, {0x1f82, "\xe1""\xbc""\x82""\xce""\xb9"}, {0x1f83, "\xe1""\xbc""\x83""\xce""\xb9"},
    {0x1f84, "\xe1""\xbc""\x84""\xce""\xb9"}, {0x1f85, "\xe1""\xbc""\x85""\xce""\xb9"}, {0x1f86, "\xe1""\xbc""\x86""\xce""\xb9"},
    {0x1f87, "\xe1""\xbc""\x87""\xce""\xb9"}, {0x1f88, "\xe1""\xbc""\x80""\xce""\xb9"}, {0x1f89, "\xe1""\xbc""\x81""\xce""\xb9"},
    {0x1f8a, "\xe1""\xbc""\x82""\xce""\xb9"}, {0x1f8b, "\xe1""\xbc""\x83""\xce""\xb9"}, {0x1f8c, "\xe1""\xbc""\x84""\xce""\xb9"},
    {0x1f8d, "\xe1""\xbc""\x85""\xce""\xb9"}, {0x1f8e, "\xe1""\xbc""\x86""\xce""\xb9"}, {0x1f8f, "\xe1""\xbc""\x87""\xce""\xb9"},
    {0x1f90, "\xe1""\xbc""\xa0""\xce""\xb9"}, {0x1f91, "\xe1""\xbc""\xa1""\xce""\xb9"}, {0x1f92, "\xe1""\xbc""\xa2""\xce""\xb9"},
    {0x1f93, "\xe1""\xbc""\xa3""\xce""\xb9"}, {0x1f94, "\xe1""\xbc""\xa4""\xce""\xb9"}, {0x1f95, "\xe1""\xbc""\xa5""\xce""\xb9"},
    {0x1f96, "\xe1""\xbc""\xa6""\xce""\xb9"}, {0x1f97, "\xe1""\xbc""\xa7""\xce""\xb9"}, {0x1f98, "\xe1""\xbc""\xa0""\xce""\xb9"},
    {0x1f99, "\xe1""\xbc""\xa1""\xce""\xb9"}, {0x1f9a, "\xe1""\xbc""\xa2""\xce""\xb9"}, {0x1f9b, "\xe1""\xbc""\xa3""\xce""\xb9"},
    {0x1f9c, "\xe1""\xbc""\xa4""\xce""\xb9"}, {0x1f9d, "\xe1""\xbc""\xa5""\xce""\xb9"}, {0x1f9e, "\xe1""\xbc""\xa6""\xce""\xb9"},
    {0x1f9f, "\xe1""\xbc""\xa7""\xce""\xb9"}, {0x1fa0, "\xe1""\xbd""\xa0""\xce""\xb9"}, {0x1fa1, "\xe1""\xbd""\xa1""\xce""\xb9"},
    {0x1fa2, "\xe1""\xbd""\xa2""\xce""\xb9"}, {0x1fa3, "\xe1""\xbd""\xa3""\xce""\xb9"}, {0x1fa4, "\xe1""\xbd""\xa4""\xce""\xb9"},
    {0x1fa5, "\xe1""\xbd""\xa5""\xce""\xb9"}, {0x1fa6, "\xe1""\xbd""\xa6""\xce""\xb9"}, {0x1fa7, "\xe1""\xbd""\xa7""\xce""\xb9"},
    {0x1fa8, "\xe1""\xbd""\xa0""\xce""\xb9"}, {0x1fa9, "\xe1""\xbd""\xa1""\xce""\xb9"}, {0x1faa, "\xe1""\xbd""\xa2""\xce""\xb9"},
    {0x1fab, "\xe1""\xbd""\xa3""\xce""\xb9"}, {0x1fac, "\xe1""\xbd""\xa4""\xce""\xb9"}, {0x1fad, "\xe1""\xbd""\xa5""\xce""\xb9"},
    {0x1fae, "\xe1""\xbd""\xa6""\xce""\xb9"}, {0x1faf, "\xe1""\xbd""\xa7""\xce""\xb9"}, {0x1fb2, "\xe1""\xbd""\xb0""\xce""\xb9"},
    {0x1fb3, "\xce""\xb1""\xce""\xb9"}, {0x1fb4, "\xce""\xac""\xce""\xb9"}, {0x1fb6, "\xce""\xb1""\xcd""\x82"},
    {0x1fb7, "\xce""\xb1""\xcd""\x82""\xce""\xb9"}, {0x1fbc, "\xce""\xb1""\xce""\xb9"}, {0x1fc2, "\xe1""\xbd""\xb4""\xce""\xb9"},
    {0x1fc3, "\xce""\xb7""\xce""\xb9"}, {0x1fc4, "\xce""\xae""\xce""\xb9"}, {0x1fc6, "\xce""\xb7""\xcd""\x82"},
    {0x1fc7, "\xce""\xb7""\xcd""\x82""\xce""\xb9"}, {0x1fcc, "\xce""\xb7""\xce""\xb9"}, {0x1fd2, "\xce""\xb9""\xcc""\x88""\xcc""\x80"},
    {0x1fd3, "\xce""\xb9""\xcc""\x88""\xcc""\x81"}, {0x1fd6, "\xce""\xb9""\xcd""\x82"}, {0x1fd7, "\xce""\xb9""\xcc""\x88""\xcd""\x82"},
    {0x1fe2, "\xcf""\x85""\xcc""\x88""\xcc""\x80"}, {0x1fe3, "\xcf""\x85""\xcc""\x88""\xcc""\x81"}, {0x1fe4, "\xcf""\x81""\xcc""\x93"},
    {0x1fe6, "\xcf""\x85""\xcd""\x82"}, {0x1fe7, "\xcf""\x85""\xcc""\x88""\xcd""\x82"}, {0x1ff2, "\xe1""\xbd""\xbc""\xce""\xb9"},
    {0x1ff3, "\xcf""\x89""\xce""\xb9"}, {0x1ff4, "\xcf""\x8e""\xce""\xb9"}, {0x1ff6, "\xcf""\x89""\xcd""\x82"},
    {0x1ff7, "\xcf""\x89""\xcd""\x82""\xce""\xb9"}, {0x1ffc, "\xcf""\x89""\xce""\xb9"}, {0xfb00, "ff"},
    {0xfb01, "fi"}, {0xfb02, "fl"}, {0xfb03, "ffi"},
    {0xfb04, "ffl"}, {0xfb05, "st"}, {0xfb06, "st"},
    {0xfb13, "\xd5""\xb4""\xd5""\xb6"}, {0xfb14, "\xd5""\xb4""\xd5""\xa5"}, {0xfb15, "\xd5""\xb4""\xd5""\xab"},
    {0xfb16, "\xd5""\xbe""\xd5""\xb6"}, {0xfb17, "\xd5""\xb4""\xd5""\xad"},
};

}  // namespace sluice::jinja
