#!/usr/bin/env bash
# Installs what LazyTrain is built with, from the packages of Debian 12 or Ubuntu 24.04 and newer, and unpacks the solvers
# of the planner (Python packages that bring their C libraries) into third_party/. Installs nothing that is there already
# and asks nothing; run it as often as you like. Needs no root when all packages are there.
#   scripts/setup.sh [--dev]     --dev: also what checks the code (clang, clang-format, clang-tidy, shellcheck, venv)
set -euo pipefail
cd "$(dirname "$0")/.."

# ocl-icd-opencl-dev: libdnnl-dev only recommends it, but its CMake files do not work without.
packages=(g++ cmake ninja-build ccache pkg-config libdnnl-dev ocl-icd-opencl-dev libhwy-dev nlohmann-json3-dev
  libyaml-cpp-dev libcli11-dev libfmt-dev libspdlog-dev libutf8proc-dev libpcre2-dev libxxhash-dev liburing-dev
  libgtest-dev libgmock-dev libbenchmark-dev python3-pip)
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

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}

install_packages() {
  local missing still_missing attempt
  mapfile -t missing < <(missing_packages)
  if [[ ${#missing[@]} -eq 0 ]]; then
    echo "setup: all ${#packages[@]} packages are there already"
    return
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
}

# The Python that has pip: a user's own python3 may be another than the one that python3-pip belongs to.
python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  return 1
}

# solver NAME PACKAGE VERSION FOLDERS...: unpacks the folders (below the wheel's root, with wildcards) of a package of
# Python's into third_party/NAME. Without it the project still builds and runs.
solver() {
  local name=$1 package=$2 version=$3 target=third_party/$1 python work wheel folder
  shift 3
  if [[ $(cat "$target/VERSION" 2>/dev/null) == "$package $version" ]]; then
    echo "setup: $target is $package $version already"
    return
  fi
  mkdir -p third_party
  work=$(mktemp -d third_party/.setup.XXXXXX)
  # shellcheck disable=SC2064 # the folder of now
  trap "rm -rf '$work'" EXIT
  if ! python=$(python_with_pip) ||
    ! "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$work" "$package==$version" ||
    ! wheel=$(ls "$work"/*.whl) || ! "$python" -m zipfile -e "$wheel" "$work/wheel"; then
    rm -rf "$work"
    echo "setup: $package $version could not be had: the planner goes on without $name" >&2
    return
  fi
  mkdir "$work/$name"
  for folder in "$@"; do
    # shellcheck disable=SC2086 # wildcards
    cp -R "$work"/wheel/$folder "$work/$name/"
  done
  echo "$package $version" >"$work/$name/VERSION"
  rm -rf "$target"
  mv "$work/$name" "$target"
  rm -rf "$work"
  echo "setup: unpacked $package $version into $target"
}

# CUDA is not installed from here: Debian's is older than the plugin needs.
say_about_cuda() {
  local nvcc
  if nvcc=$(command -v nvcc) || nvcc=$(command -v /usr/local/cuda/bin/nvcc); then
    echo "setup: $nvcc is there: the plugin for CUDA will be built if it is of version 12 or newer"
  else
    echo "setup: no nvcc is there: the plugin for CUDA will not be built (docs/cuda.md says what it needs)"
  fi
}

install_packages
solver highs highsbox 1.15.1 '*/purelib/highsbox/highs_dist/include' '*/purelib/highsbox/highs_dist/lib' '*.dist-info'
solver scip pyscipopt 6.3.0 'pyscipopt.libs/*' '*.dist-info'
say_about_cuda
