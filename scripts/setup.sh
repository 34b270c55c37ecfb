#!/usr/bin/env bash
# Installs what LazyTrain is built with, from the packages of Debian 12 or Ubuntu 24.04 and newer. Installs nothing that
# is there already and asks nothing; run it as often as you like.
#   scripts/setup.sh [--dev]     --dev: also what checks the code (clang, clang-format, clang-tidy, shellcheck, venv)
set -euo pipefail

# ocl-icd-opencl-dev: libdnnl-dev only recommends it, but its CMake files do not work without.
packages=(g++ cmake ninja-build ccache pkg-config libdnnl-dev ocl-icd-opencl-dev libhwy-dev nlohmann-json3-dev
  libyaml-cpp-dev libcli11-dev libfmt-dev libspdlog-dev libutf8proc-dev libpcre2-dev libxxhash-dev libgtest-dev
  libgmock-dev libbenchmark-dev)
dev_packages=(clang clang-format clang-tidy libclang-rt-dev python3-venv shellcheck)

usage() {
  echo "usage: scripts/setup.sh [--dev]" >&2
  exit 2
}
[[ $# -le 1 ]] || usage
case ${1:-} in
  "") ;;
  --dev) packages+=("${dev_packages[@]}") ;;
  *) usage ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "setup: this system has no apt-get. Install the equivalents of these packages, then run scripts/build.sh:" >&2
  echo "  ${packages[*]}" >&2
  exit 1
fi

is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    is_installed "$package" || echo "$package"
  done
}

mapfile -t missing < <(missing_packages)
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "setup: all ${#packages[@]} packages are there already"
  exit 0
fi
echo "setup: $((${#packages[@]} - ${#missing[@]})) of ${#packages[@]} packages are there already; installing: ${missing[*]}"

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  # sudo may ask for a password only where somebody can type it.
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    as_root=(sudo)
  else
    echo "setup: installing packages needs root. Run this as root, then start again:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}

# A fresh system has no package lists and an old one has lists of packages that are gone: then they are fetched.
if ! apt install --no-install-recommends --download-only "${missing[@]}" >/dev/null 2>&1; then
  for attempt in 1 2 3; do
    if apt update; then break; fi
    [[ $attempt -lt 3 ]] || { echo "setup: apt-get update failed three times; is the network there?" >&2; exit 1; }
    sleep $((attempt * 5))
  done
fi
apt install --no-install-recommends "${missing[@]}"

mapfile -t still_missing < <(missing_packages)
if [[ ${#still_missing[@]} -gt 0 ]]; then
  echo "setup: apt-get ended well, but these are not installed: ${still_missing[*]}" >&2
  exit 1
fi
echo "setup: done, ${#missing[@]} packages installed"
