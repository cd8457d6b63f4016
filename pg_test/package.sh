#!/usr/bin/env bash
# Packs what `make install` installs: a tar.gz and, where dpkg-deb is, a .deb. Called by `make package`
# with PG_CONFIG, MAJOR, VERSION, OUT (a folder) and MAKE.
set -euo pipefail
umask 022

tree=$OUT/pg$MAJOR
name=postgresql-$MAJOR-bide
rm -rf "$tree"
mkdir -p "$tree"
"$MAKE" --no-print-directory -s install "PG_CONFIG=$PG_CONFIG" "DESTDIR=$(readlink -f "$tree")" >/dev/null
install -D -m 644 README.md "$tree/usr/share/doc/$name/README.md"
[ ! -e CHANGELOG.md ] || install -m 644 CHANGELOG.md "$tree/usr/share/doc/$name/"
[ ! -e LICENSE ] || install -m 644 LICENSE "$tree/usr/share/doc/$name/copyright"

archive=$OUT/bide-$VERSION-pg$MAJOR-$(uname -m).tar.gz
tar czf "$archive" --owner=0 --group=0 --numeric-owner -C "$tree" .
echo "$archive"

if ! command -v dpkg-deb >/dev/null; then
    echo "no .deb: dpkg-deb is not here"
    exit 0
fi
pkglibdir=$("$PG_CONFIG" --pkglibdir)
if [ "$pkglibdir" != "/usr/lib/postgresql/$MAJOR/lib" ]; then
    echo "no .deb: $PG_CONFIG is not the server of a Debian package"
    exit 0
fi

# The libraries that bide.so names, and the newest symbol version of libc that it wants.
libc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$tree$pkglibdir/bide.so" | sort -uV | tail -n 1)
architecture=$(dpkg --print-architecture)
staged=$OUT/deb-pg$MAJOR
deb=$OUT/${name}_$VERSION-1_$architecture.deb
rm -rf "$staged"
cp -a "$tree" "$staged"
mkdir "$staged/DEBIAN"
cat >"$staged/DEBIAN/control" <<CONTROL
Package: $name
Version: $VERSION-1
Architecture: $architecture
Section: database
Priority: optional
Maintainer: ${DEBFULLNAME:-the authors of bide} <${DEBEMAIL:-root@localhost}>
Installed-Size: $(du -sk "$tree" | cut -f1)
Depends: postgresql-$MAJOR, libc6 (>= ${libc#GLIBC_}), libgcc-s1
Description: $(sed -n "s/^comment = '\(.*\)'/\1/p" bide.control)
 An extension for PostgreSQL $MAJOR, for people who run durable agents and other
 long-lived workflows on it. CREATE EXTENSION bide makes it available in a database.
CONTROL
dpkg-deb --root-owner-group --build "$staged" "$deb" >/dev/null
rm -rf "$staged"
echo "$deb"
