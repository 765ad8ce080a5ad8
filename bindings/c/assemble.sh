#!/bin/sh
# assemble.sh ARCHIVE FOLDER [DEBUG]: makes include/, lib/ and lib/pkgconfig in FOLDER from libfarhaul_c.a. The debug
# information of the shared library goes into the file DEBUG, if one is named.
#
# The shared library is linked here and not by rustc, which has a list of symbols of its own beside which there can be no
# other.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
archive="$1" folder="$2" debug="${3:-}"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -1)"
mkdir -p "$folder/include" "$folder/lib/pkgconfig"
cp "$here/include/farhaul.h" "$folder/include/"
cp "$archive" "$folder/lib/libfarhaul.a"
strip --strip-debug "$folder/lib/libfarhaul.a"
${CC:-cc} -shared -o "$folder/lib/libfarhaul.so.$version" -Wl,-soname,libfarhaul.so.0 -Wl,--version-script="$here/farhaul.map" \
    -Wl,--gc-sections -Wl,-z,relro,-z,now,-z,defs -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
[ -z "$debug" ] || objcopy --only-keep-debug --compress-debug-sections=zlib "$folder/lib/libfarhaul.so.$version" "$debug"
strip --strip-unneeded "$folder/lib/libfarhaul.so.$version"
ln -sf "libfarhaul.so.$version" "$folder/lib/libfarhaul.so.0"
ln -sf libfarhaul.so.0 "$folder/lib/libfarhaul.so"
sed -e "s|@PREFIX@|$folder|" -e "s|@LIBDIR@|lib|" -e "s|@VERSION@|$version|" "$here/farhaul.pc.in" >"$folder/lib/pkgconfig/farhaul.pc"
