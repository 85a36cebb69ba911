#!/bin/sh
# Install packages of the distribution, without asking: system_package.sh MANAGER PACKAGE...
# Exit 1, in silence, where MANAGER is not here or may not be used (no root and no sudo without a password).
manager=$1
shift
command -v "$manager" >/dev/null 2>&1 || exit 1

as_root=
if [ "$manager" = brew ]; then
    [ "$(id -u)" != 0 ] || exit 1 # brew refuses root
elif [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null || exit 1
    as_root='sudo -n'
fi

echo "set-up: installing $* with $manager" >&2
case $manager in
    # RUNLEVEL=1 keeps Debian's scripts from starting the service that a package brings.
    apt-get)
        apt="$as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq -o DPkg::Lock::Timeout=120"
        $apt install -y --no-install-recommends "$@" >/dev/null 2>&1 && exit 0
        $apt update >/dev/null && $apt install -y --no-install-recommends "$@" >/dev/null
        ;;
    dnf | yum) $as_root "$manager" -q -y install "$@" ;;
    apk) $as_root apk add -q "$@" ;;
    pacman) $as_root pacman -S --noconfirm --needed "$@" ;;
    zypper) $as_root zypper -q -n install "$@" ;;
    brew) brew install -q "$@" ;;
    *) exit 1 ;;
esac
