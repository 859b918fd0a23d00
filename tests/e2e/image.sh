#!/usr/bin/env bash
# Builds the image of the last commit twice, from two checkouts and without a cache, and compares: the digests must be one.
# Then the image's own programs run in it, as its user: the command, the whole demo, and a bill of what is installed.
# Needs root, buildah and mmdebstrap; no Docker. BASE=IMAGE names a base by its digest, otherwise one is made of Debian's
# packages. BUILDFLAGS=... goes to buildah, for example what pip needs to reach a package index from inside.
set -euo pipefail
cd "$(dirname "$0")/../.."

run=$(mktemp -d)
export STORAGE_DRIVER=vfs
builder() { buildah --root "$run/store" --runroot "$run/run" "$@"; }
clean_up() {
  builder umount --all >/dev/null 2>&1 || true
  rm -rf "$run"
}
trap clean_up EXIT

epoch=$(git log -1 --format=%ct)
base=${BASE:-}
if [[ -z $base ]]; then
  base=localhost/base:bookworm
  SOURCE_DATE_EPOCH=$epoch mmdebstrap --quiet --variant=apt --include=python3-venv,python-is-python3,ca-certificates \
    bookworm "$run/base.tar"
  empty=$(builder from scratch)
  builder add --quiet "$empty" "$run/base.tar" / >/dev/null
  builder commit --quiet --rm --timestamp "$epoch" "$empty" "$base" >/dev/null
fi

for build in first second; do
  mkdir "$run/$build"
  # As two people check it out: at different times, and with different ideas of who may write.
  (umask "$([[ $build == first ]] && echo 022 || echo 002)" && git archive HEAD | tar --touch --no-same-permissions -xC "$run/$build")
  # shellcheck disable=SC2086 # several flags
  builder build --quiet --isolation chroot --no-cache --timestamp "$epoch" ${BUILDFLAGS:-} \
    --build-arg BASE="$base" --build-arg SOURCE_DATE_EPOCH="$epoch" --tag "localhost/tutti:$build" "$run/$build" >/dev/null
  builder inspect --type image --format "{{.FromImageDigest}}" "localhost/tutti:$build" >"$run/$build.digest"
  echo "$build build: $(<"$run/$build.digest")"
done
cmp "$run/first.digest" "$run/second.digest" || { echo "two builds of one commit differ" >&2; exit 1; }

made=$(builder from localhost/tutti:first)
inside() { builder run --isolation chroot "$made" -- "$@"; }
[[ $(inside id -u) == 65532 ]]
inside tutti --version
inside python -m webhook --help >/dev/null
inside python -m certs --help >/dev/null
inside tutti demo | tail -1
inside python - <<'PYTHON' | sort >"$run/installed"
from importlib.metadata import distributions
print(*(f"{found.metadata['Name'].lower().replace('_', '-')}=={found.version}" for found in distributions()), sep="\n")
PYTHON
grep -oE '^[a-z0-9._-]+==[^ ;]+' requirements.lock | tr _ - | sort >"$run/locked"
unlocked=$(comm -23 "$run/installed" "$run/locked")
[[ -z $unlocked ]] || { echo "not in requirements.lock: $unlocked" >&2; exit 1; }
echo "$(wc -l <"$run/installed") distributions, each of them in requirements.lock"
