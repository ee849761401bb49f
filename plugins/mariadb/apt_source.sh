# Functions for build.sh and install.sh: source packages of the distribution. To be sourced by bash.

# use_source_lists DIR NAME VERSION: sets the array APT to options with which apt knows the source package. The package lists of
# the system may have no sources; then own ones are made in DIR from its settings, without root. Fails if no mirror lists it.
use_source_lists() {
  local dir=$1 name=$2 version=$3 file
  APT=()
  # All of the output is read: grep -q would end the writer early, which pipefail takes for a failure.
  if apt-cache showsrc "$name" 2>/dev/null | grep -xF "Version: $version" > /dev/null; then return 0; fi
  if [ ! -d "$dir/apt" ]; then
    mkdir -p "$dir/apt/parts" "$dir/apt/lists/partial" "$dir/apt/archives/partial"
    : > "$dir/apt/sources.list"
    if [ -e /etc/apt/sources.list ]; then
      sed -n 's/^deb\(-src\)\? /deb-src /p' /etc/apt/sources.list > "$dir/apt/sources.list"
    fi
    for file in /etc/apt/sources.list.d/*.list; do
      if [ -e "$file" ]; then sed -n 's/^deb\(-src\)\? /deb-src /p' "$file" > "$dir/apt/parts/${file##*/}"; fi
    done
    for file in /etc/apt/sources.list.d/*.sources; do
      if [ -e "$file" ]; then sed 's/^Types:.*/Types: deb-src/' "$file" > "$dir/apt/parts/${file##*/}"; fi
    done
  fi
  APT=(-o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o "Dir::Etc::sourceparts=$dir/apt/parts"
       -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt")
  if [ ! -e "$dir/apt/updated" ]; then
    apt-get "${APT[@]}" -qq update || return 1
    : > "$dir/apt/updated"
  fi
  apt-cache "${APT[@]}" showsrc "$name" 2>/dev/null | grep -xF "Version: $version" > /dev/null
}

# has_source_package FILE.dsc: true if all files of the package are beside it, with their checksums.
has_source_package() {
  [ -e "$1" ] && (cd "$(dirname "$1")" &&
    awk '/^[^ ]/ { files = $1 == "Checksums-Sha256:" } files && NF == 3 { print $1 "  " $3 }' "$1" | sha256sum --check --status)
}

# download_source_package DIR NAME VERSION: downloads the files of a source package into DIR; those that are there are kept.
# A mirror may list a package whose files it does not have; its small file is tried first.
download_source_package() {
  local dir=$1 name=$2 version=$3
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  if has_source_package "$dir/${name}_${version#*:}.dsc"; then return 0; fi
  use_source_lists "$dir" "$name" "$version" || return 1
  (cd "$dir" &&
    apt-get ${APT[@]+"${APT[@]}"} -qq source --download-only --dsc-only "$name=$version" >/dev/null 2>&1 &&
    apt-get ${APT[@]+"${APT[@]}"} -qq source --download-only "$name=$version" >/dev/null)
}
