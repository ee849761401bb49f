#!/bin/sh
# Installs a tree of files, remembers what it has installed, and removes exactly that again:
#
#     tools/install-files.sh install STAGE MANIFEST [--no-overwrite]
#     tools/install-files.sh uninstall MANIFEST
#
# STAGE has the files with their final paths. DESTDIR (environment) is put before every path. MANIFEST, also a path below
# DESTDIR, lists what was installed, with checksums:
#     d PATH           a directory that did not exist
#     f SHA256 PATH    a file
#     l TARGET PATH    a symbolic link
# A file that was changed since the installation is neither overwritten with --no-overwrite nor removed, unless FORCE=1.
set -eu
mode=$1
destdir=${DESTDIR:-}
force=${FORCE:-0}
tab=$(printf '\t')

sum() { sha256sum "$1" | cut -c 1-64; }

# is_ours PATH: true if the old manifest lists the file as it is now.
is_ours() {
    [ -e "$destdir$manifest" ] || return 1
    if [ -L "$destdir$1" ]; then
        grep -qxF "l$tab$(readlink "$destdir$1")$tab$1" "$destdir$manifest"
    else
        grep -qxF "f$tab$(sum "$destdir$1")$tab$1" "$destdir$manifest"
    fi
}

# make_dirs PATH: creates a directory, and lists those that did not exist.
make_dirs() {
    [ -d "$destdir$1" ] && return
    make_dirs "$(dirname "$1")"
    mkdir -m 755 "$destdir$1"
    printf 'd\t%s\n' "$1" >>"$new"
}

install_files() {
    stage=$1 manifest=$2 overwrite=${3:-}
    new=$(mktemp)
    list=$(mktemp)
    trap 'rm -f "$new" "$list"' EXIT
    (cd "$stage" && find . \( -type f -o -type l \) | sed 's/^\.//' | LC_ALL=C sort) >"$list"
    if [ "$overwrite" = --no-overwrite ] && [ "$force" != 1 ]; then
        foreign=
        while IFS= read -r path; do
            if [ -e "$destdir$path" ] || [ -L "$destdir$path" ]; then
                is_ours "$path" || foreign="$foreign  $destdir$path
"
            fi
        done <"$list"
        if [ -n "$foreign" ]; then
            printf 'not installed: these files were not installed by Perigee:\n%sFORCE=1 overwrites them.\n' "$foreign" >&2
            exit 1
        fi
    fi
    # Directories that an earlier installation has created are still ours.
    [ ! -e "$destdir$manifest" ] || grep "^d$tab" "$destdir$manifest" >"$new" || true
    mkdir -p "$destdir/"
    while IFS= read -r path; do
        make_dirs "$(dirname "$path")"
        if [ -L "$stage$path" ]; then
            target=$(readlink "$stage$path")
            ln -sfn "$target" "$destdir$path"
            printf 'l\t%s\t%s\n' "$target" "$path" >>"$new"
        else
            # Not written in place: programs may be using the old file.
            cp --preserve=mode "$stage$path" "$destdir$path.new"
            mv -f "$destdir$path.new" "$destdir$path"
            printf 'f\t%s\t%s\n' "$(sum "$stage$path")" "$path" >>"$new"
        fi
    done <"$list"
    # Files of an earlier version that this one does not have.
    if [ -e "$destdir$manifest" ]; then
        while IFS="$tab" read -r kind value path; do
            [ "$kind" != d ] && ! grep -qxF "$path" "$list" || continue
            remove_file "$kind" "$value" "$path"
        done <"$destdir$manifest"
    fi
    make_dirs "$(dirname "$manifest")"
    sort -u "$new" >"$destdir$manifest"
    chmod 644 "$destdir$manifest"
    echo "installed $(wc -l <"$list") files below $destdir/"
}

# remove_file KIND VALUE PATH: removes a file or link if it is as it was installed.
remove_file() {
    file=$destdir$3
    [ -e "$file" ] || [ -L "$file" ] || return 0
    case $1 in
    f) [ ! -L "$file" ] && [ "$(sum "$file")" = "$2" ] && same=1 || same=0 ;;
    *) [ -L "$file" ] && [ "$(readlink "$file")" = "$2" ] && same=1 || same=0 ;;
    esac
    if [ "$same" = 1 ] || [ "$force" = 1 ]; then
        rm -f "$file"
    else
        echo "not removed: $file was changed after its installation; FORCE=1 removes it" >&2
        [ -z "${kept:-}" ] || printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$kept"
    fi
}

uninstall_files() {
    manifest=$1
    if [ ! -e "$destdir$manifest" ]; then
        echo "nothing to remove: there is no $destdir$manifest" >&2
        exit 1
    fi
    copy=$(mktemp)
    kept=$(mktemp)
    trap 'rm -f "$copy" "$kept"' EXIT
    cp "$destdir$manifest" "$copy"
    while IFS="$tab" read -r kind value path; do
        [ "$kind" = d ] || remove_file "$kind" "$value" "$path"
    done <"$copy"
    if [ -s "$kept" ]; then
        # Another call with FORCE=1 can remove them, and then the directories.
        grep "^d$tab" "$copy" >>"$kept" || true
        cat "$kept" >"$destdir$manifest"
    else
        rm -f "$destdir$manifest"
    fi
    # The deepest directories first; those with other files stay.
    { grep "^d$tab" "$copy" || true; } | cut -f 2 | LC_ALL=C sort -r | while IFS= read -r path; do
        rmdir "$destdir$path" 2>/dev/null || true
    done
    [ ! -s "$kept" ] || exit 1
    echo "removed from $destdir/"
}

case $mode in
install) shift; install_files "$@" ;;
uninstall) shift; uninstall_files "$@" ;;
*) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
