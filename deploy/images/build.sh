#!/usr/bin/env bash
# Builds FlashFleet's images with buildah, docker or podman, whichever is there:
#
#   deploy/images/build.sh [operator] [router] [worker] [-- FLAGS OF THE BUILD...]
#
# BUILDER  buildah, docker or podman          REPOSITORY  what names start with (localhost/flashfleet)
# TAG      their tag (the project's version)  BASE        base image (see Containerfile)
# TORCH    cpu (default) or cuda              MODEL       demo (default) or none
# WHEELS   a folder of wheels on this machine, for torch's CPU build
#
# Prints one line for each image: its name and its size. In a container without user namespaces set
# BUILDAH_ISOLATION=chroot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

images=()
while (($#)) && [[ $1 != -- ]]; do
    case $1 in
        operator | router | worker) images+=("$1") ;;
        -h | --help) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "build.sh: $1 is none of operator, router, worker; flags of the build go behind --" >&2; exit 2 ;;
    esac
    shift
done
(($#)) && shift
((${#images[@]})) || images=(operator router worker)

if [[ -z ${BUILDER:-} ]]; then
    for BUILDER in buildah docker podman none; do command -v "$BUILDER" >/dev/null && break; done
    [[ $BUILDER != none ]] || { echo "build.sh: install buildah, docker or podman" >&2; exit 2; }
fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml | head -n 1)
repository=${REPOSITORY:-localhost/flashfleet}
tag=${TAG:-$version}

common=()
[[ -z ${BASE:-} ]] || common+=(--build-arg "BASE=$BASE")
if [[ -n ${WHEELS:-} ]]; then
    [[ -d $WHEELS ]] || { echo "build.sh: WHEELS=$WHEELS is not a folder" >&2; exit 2; }
    common+=(--build-context "wheels=$(realpath "$WHEELS")")
fi

for image in "${images[@]}"; do
    name=$repository-$image:$tag
    arguments=("${common[@]}" --target "$image" --file deploy/images/Containerfile --tag "$name")
    if [[ $image == worker ]]; then
        arguments+=(--build-arg "TORCH=${TORCH:-cpu}" --build-arg "MODEL=${MODEL:-demo}")
    fi
    echo "==> $name ($BUILDER)" >&2
    "$BUILDER" build "${arguments[@]}" "$@" . >&2
    if [[ $BUILDER == buildah ]]; then
        size=$(buildah images --format '{{.Size}}' "$name" | head -n 1)
    else
        size=$("$BUILDER" image inspect --format '{{.Size}}' "$name" | awk '{printf "%.0f MB", $1 / 1e6}')
    fi
    echo "$name $size"
done
