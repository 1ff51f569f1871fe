#!/usr/bin/env bash
# install_packages.sh [PACKAGE ...]: installs what is missing of tools/packages.txt and of those named. Prints nothing
# when nothing is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

missing=()
for package in $(grep -v '^#' "$here/packages.txt") "$@"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "These Debian packages are missing, and installing them needs root:" >&2
  echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "Installing ${#missing[@]} Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "apt-get failed (above). Baton is built on Debian 12 (bookworm); other releases lack some of these." >&2
  exit 1
fi
rm -f "$log"
