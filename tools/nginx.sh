#!/usr/bin/env bash
# Unpacks Debian's nginx into .tools/nginx for the benchmark and the tests, when the machine has none of its own.
# Installing the package would enable and start a web server on the user's board, so it is never installed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

unpack() {
    rm -rf .tools/nginx
    mkdir -p .tools/nginx
    (cd .tools/nginx && apt-get download nginx && dpkg -x nginx_*.deb . && rm nginx_*.deb)
    .tools/nginx/usr/sbin/nginx -V
}

[[ ! -x /usr/sbin/nginx ]] || exit 0
[[ ! -x .tools/nginx/usr/sbin/nginx ]] || exit 0
step "unpacking nginx" nginx.log unpack
