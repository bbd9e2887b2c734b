#!/usr/bin/env bash
# Makes a tarball from a wheel, for hosts without pip, and a Debian package if dpkg-deb exists.
#   deploy/package.sh WHEEL [DIRECTORY]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
wheel=${1:?which wheel? make one with: make wheel GLIBC=2.28}
out=$(mkdir -p "${2:-$here/dist}" && cd "${2:-$here/dist}" && pwd)
version=$(basename "$wheel" | cut -d- -f2)
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m zipfile -e "$wheel" "$work/wheel"
# zipfile does not restore file modes.
chmod 755 "$work/wheel/xpu_top/bin/"*
papers=("$here/LICENSE" "$here/NOTICE" "$here/README.md" "$here/CHANGELOG.md")

root="$work/xpu-top-$version-linux-$machine"
mkdir -p "$root/bin" "$root/include"
cp -r "$work/wheel/xpu_top" "$root/"
ln -s ../xpu_top/bin/xpu-top ../xpu_top/bin/xpu-collector "$root/bin/"
cp "$here/hook/include/xpu_top.h" "$root/include/"
cp -r "$here/docs" "$here/deploy" "${papers[@]}" "$root/"
tar --owner=0 --group=0 --numeric-owner --sort=name -C "$work" -czf "$out/$(basename "$root").tar.gz" "$(basename "$root")"
echo "$out/$(basename "$root").tar.gz"

if ! command -v dpkg-deb >/dev/null; then
    echo "dpkg-deb is not there: no Debian package was made" >&2
    exit 0
fi
architecture=$(dpkg --print-architecture)
root="$work/deb"
python="$root/usr/lib/python3/dist-packages"
mkdir -p "$root/DEBIAN" "$python" "$root/usr/bin" "$root/usr/include" "$root/usr/share/doc/xpu-top"
cp -r "$work/wheel/xpu_top" "$python/"
ln -s ../lib/python3/dist-packages/xpu_top/bin/xpu-top ../lib/python3/dist-packages/xpu_top/bin/xpu-collector "$root/usr/bin/"
cp "$here/hook/include/xpu_top.h" "$root/usr/include/"
cp -r "$here/docs" "$here/deploy" "${papers[@]}" "$root/usr/share/doc/xpu-top/"
cp "$here/LICENSE" "$root/usr/share/doc/xpu-top/copyright"
# The oldest C library with every symbol that the programs need.
libc=$(find "$work/wheel" -type f \( -name '*.so' -o -path '*/bin/*' \) -exec grep -aoh 'GLIBC_2\.[0-9]*' {} + | sort -uV | tail -1)
cat >"$root/DEBIAN/control" <<CONTROL
Package: xpu-top
Version: $version
Architecture: $architecture
Maintainer: The xpu-top authors <xpu-top@users.noreply.github.com>
Depends: libc6 (>= ${libc#GLIBC_})
Recommends: python3 (>= 3.9)
Section: admin
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Homepage: https://github.com/xpu-top/xpu-top
Description: htop for distributed GPU training
 Watches every rank of a training job: GEMMs and collectives per rank as
 heatmaps, slow ranks and hangs by name, captures of steps, merged stacks.
CONTROL
chmod -R go-w "$root"
dpkg-deb --root-owner-group --build "$root" "$out/xpu-top_${version}_$architecture.deb" >/dev/null
echo "$out/xpu-top_${version}_$architecture.deb"
