#!/bin/sh
# Have a `redis-server` for the tests: `redis.sh` installs one where that is allowed, `redis.sh left-out` only reports.
# Exit 1 without one only where FLASHFLEET_REQUIRE_REDIS is set, as it is in CI.
here=$(cd "$(dirname "$0")" && pwd) || exit 1

if command -v redis-server >/dev/null 2>&1; then
    exit 0
fi
if [ "$1" != left-out ]; then
    for manager in apt-get dnf yum apk pacman zypper brew; do
        package=redis
        [ "$manager" != apt-get ] || package=redis-server
        if sh "$here/system_package.sh" "$manager" "$package" && command -v redis-server >/dev/null 2>&1; then
            exit 0
        fi
    done
fi
if [ -n "$FLASHFLEET_REQUIRE_REDIS" ]; then
    echo "FLASHFLEET_REQUIRE_REDIS is set, and there is no redis-server and no way to install one" >&2
    exit 1
elif [ "$1" = left-out ]; then
    echo "LEFT OUT: the tests on Redis. The same tests ran on Valkey. To run them too, install redis-server." >&2
else
    echo "No redis-server here, and no right to install one: the tests on Redis will be left out." >&2
fi
