# shellcheck shell=bash
# Shared by run, test and scripts/*: messages, and what has to be installed. To be sourced by bash, from anywhere.

# The root of the working copy.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Messages go to standard error, so that standard output stays for results.
say() { printf '%s\n' "$*" >&2; }

fail() {
    say "error: $*"
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        fail "needs root for: $*; there is no sudo, so run this as root or install it yourself"
    fi
}

# When the script ends, however it ends: deletes everything in the list `leftovers`, and undoes `forbid_services`.
leftovers=()
clean_up() {
    [ ${#leftovers[@]} = 0 ] || rm -rf "${leftovers[@]}"
    allow_services
}
trap clean_up EXIT
# A signal would end bash without the trap above.
trap 'exit 130' INT
trap 'exit 143' TERM

# install_packages NAME... : installs packages of the distribution, and starts none of the services they bring.
install_packages() {
    has apt-get || fail "needs these packages, and there is no apt-get to install them: $*"
    say "installing with apt-get: $*"
    as_root apt-get update -qq >&2 || say "apt-get update failed; going on with the package lists that are here"
    local status=0 log
    log=$(mktemp)
    leftovers+=("$log")
    forbid_services
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$log" 2>&1 || status=$?
    allow_services
    if [ "$status" != 0 ]; then
        cat "$log" >&2
        fail "apt-get could not install: $*"
    fi
    # Nothing runs now; nothing shall start with the machine either and take the port.
    local service
    if [ -d /run/systemd/system ]; then
        for service in valkey-server redis-server mariadb prometheus; do
            case " $* " in *" $service"*) as_root systemctl disable --now "$service" >/dev/null 2>&1 || true ;; esac
        done
    fi
}

# Debian's packages ask this program whether a service may start; 101 is no. One that is there already stays.
service_policy=/usr/sbin/policy-rc.d
service_policy_is_ours=no
forbid_services() {
    [ ! -e "$service_policy" ] || return 0
    service_policy_is_ours=yes
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$service_policy" >/dev/null
    as_root chmod 755 "$service_policy"
}
allow_services() {
    if [ "$service_policy_is_ours" = yes ]; then
        as_root rm -f "$service_policy"
        service_policy_is_ours=no
    fi
}

# command_of PROGRAM : sets `server_command`, the words that start a server: one that `scripts/servers` has unpacked
# starts by the loader and the libraries of its own folder, as in crates/servers.
command_of() {
    local unpacked=${1%/usr/bin/*} loader='' libraries
    server_command=("$1")
    if [ "$unpacked" = "$1" ] || [ -z "$unpacked" ]; then return 0; fi
    loader=$(find "$unpacked/lib" "$unpacked/usr/lib" -maxdepth 2 -name 'ld-linux-*' -print -quit 2>/dev/null || true)
    # One that was built here needs none.
    [ -n "$loader" ] || return 0
    libraries=$(printf '%s:' "$unpacked"/lib/*-linux-gnu "$unpacked"/usr/lib/*-linux-gnu)
    server_command=("$loader" --library-path "$libraries" "$1")
}

# version_of PROGRAM : the x.y.z that a server tells.
version_of() {
    local server_command
    command_of "$1"
    "${server_command[@]}" --version 2>/dev/null | sed -n 's/.*[ ]v=\([0-9.]*\).*/\1/p'
}

# name_of PROGRAM : valkey or redis, by what it says of itself.
name_of() {
    local server_command
    command_of "$1"
    case $("${server_command[@]}" --version 2>/dev/null) in Valkey*) printf 'valkey' ;; *) printf 'redis' ;; esac
}

# can_do_all PRODUCT VERSION : whether all of Tenure runs there. Replies are held by functions of the server that
# were tried on these versions (crates/host/src/holding.rs); sleep, warm restart and hints by connection need Valkey
# 7.2 or Redis 7.2.
can_do_all() {
    case $1-$2 in valkey-8.0.* | valkey-8.1.* | valkey-9.1.* | redis-8.0.*) ;; *) return 1 ;; esac
}

# what_lacks PRODUCT VERSION : what of Tenure doesn't run there, as half a sentence.
what_lacks() {
    case $1-$2 in
        redis-7.0.*) printf 'sleep, warm restart, hints by connection and held replies (tenure.replies)' ;;
        *) printf 'held replies (tenure.replies)' ;;
    esac
}

# choose_server : sets `server`, and `server_why`: what was asked for, else the first that can do all of the
# installed one, the one that the distribution would install, the newest that scripts/servers has or can fetch; else
# whatever is installed.
choose_server() {
    local installed product version reason folder=${TENURE_SERVERS_DIR:-$root/.servers}
    if [ -n "${TENURE_SERVER:-}" ]; then
        server=$TENURE_SERVER server_why='asked for'
        [ -n "$(version_of "$server")" ] ||
            fail "$server --version says neither Valkey nor Redis: name the program of a server"
        return
    fi
    if installed=$(find_server); then
        product=$(name_of "$installed") version=$(version_of "$installed")
        if can_do_all "$product" "$version"; then
            server=$installed server_why='installed'
            return
        fi
        reason="the installed $product $version lacks $(what_lacks "$product" "$version")"
    else
        reason='none is installed'
        for product in valkey redis; do
            version=$(candidate_version "$product-server")
            if can_do_all "$product" "$version"; then
                install_packages "$product-server"
                server=$(command -v "$product-server") server_why="the distribution's"
                return
            fi
        done
    fi
    if ! newest_unpacked; then
        say "server: $reason; fetching newer ones into $folder (once)"
        "$root/scripts/servers" --quick || true
        newest_unpacked || true
    fi
    if [ -n "$server" ]; then
        server_why="$reason; this one can do all"
    else
        [ -n "$installed" ] || { install_server && installed=$(find_server); }
        server=$installed
        server_why="$(what_lacks "$(name_of "$installed")" "$(version_of "$installed")") won't work,"
        server_why+=" and no other could be fetched"
    fi
}

# newest_unpacked : sets `server` to the newest server of scripts/servers that can do all; false where there is none.
newest_unpacked() {
    local folder=${TENURE_SERVERS_DIR:-$root/.servers} found name
    server=
    # By version, and Valkey of two of one version.
    for found in $(find -H "$folder" -mindepth 1 -maxdepth 1 -type d -name '[a-z]*-*' -printf '%f\n' 2>/dev/null |
        sort -t- -k2,2V -k1,1); do
        name=${found%%-*}
        can_do_all "$name" "${found#*-}" && [ -x "$folder/$found/usr/bin/$name-server" ] || continue
        server=$folder/$found/usr/bin/$name-server
    done
    [ -n "$server" ]
}

# at_least VERSION MINIMUM
at_least() { [ -n "$1" ] && [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The same choice as `ServerBinary::installed` in crates/servers: TENURE_SERVER, Valkey 7.2 or newer, Redis 7.0 or
# newer.
find_server() {
    if [ -n "${TENURE_SERVER:-}" ]; then
        printf '%s\n' "$TENURE_SERVER"
    elif has valkey-server && at_least "$(version_of valkey-server)" 7.2; then
        command -v valkey-server
    elif has redis-server && at_least "$(version_of redis-server)" 7.0; then
        command -v redis-server
    else
        return 1
    fi
}

# The upstream version of the package that apt would install, from the output of `apt-cache policy`; empty when none.
candidate_of_policy() { sed -n 's/^ *Candidate: *\(.*:\)\{0,1\}\([0-9][0-9.]*\).*/\2/p'; }
candidate_version() { apt-cache policy "$1" 2>/dev/null | candidate_of_policy; }

# has_package NAME : whether apt could install it.
has_package() { [ -n "$(candidate_version "$1")" ]; }

install_server() {
    has apt-get || fail "no server: install Valkey 7.2 or newer, or Redis 7.0 or newer"
    [ -n "$(candidate_version redis-server)" ] || as_root apt-get update -qq >&2 || true
    if at_least "$(candidate_version valkey-server)" 7.2; then
        install_packages valkey-server
    elif at_least "$(candidate_version redis-server)" 7.0; then
        install_packages redis-server
    else
        fail "this distribution has neither Valkey 7.2 nor Redis 7.0:" \
            "install one of them, or set TENURE_SERVER to its path"
    fi
    find_server >/dev/null || fail "a server was installed but is not on the PATH"
}

# The bindings to the server's module API are generated with libclang, which needs its own headers too.
has_libclang() {
    local library
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    for library in /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*-linux-gnu/libclang-*.so*; do
        if [ -e "$library" ] && compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' >/dev/null; then
            return 0
        fi
    done
    return 1
}

# Makes sure that the workspace can be built: what Cargo does not bring itself.
need_build_tools() {
    has cargo || [ ! -x "$HOME/.cargo/bin/cargo" ] || PATH="$HOME/.cargo/bin:$PATH"
    has cargo || fail "no cargo: install Rust $(rust_version_min) or newer first"
    local missing=()
    has cc || missing+=(build-essential)
    has pkg-config || missing+=(pkg-config)
    has_libclang || missing+=(libclang-dev)
    pkg-config --exists sqlite3 2>/dev/null || missing+=(libsqlite3-dev)
    pkg-config --exists libzstd 2>/dev/null || missing+=(libzstd-dev)
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
    local rust_version
    rust_version=$(cd "$root" && rustc --version | cut -d ' ' -f 2)
    at_least "$rust_version" "$(rust_version_min)" ||
        fail "rustc is $rust_version; needed is $(rust_version_min) or newer (with rustup: rustup update stable)"
}

rust_version_min() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml"; }

# What the tests need beyond that.
need_test_tools() {
    local missing=()
    has mariadbd || [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server)
    # What people look at servers with; where the distribution hasn't one, its tests say that they are skipped.
    has promtool || ! has_package prometheus || missing+=(prometheus)
    has chromium || ! has_package chromium || missing+=(chromium)
    has chromedriver || ! has_package chromium-driver || missing+=(chromium-driver)
    has tmux || missing+=(tmux)
    has openssl || missing+=(openssl)
    # To let a thread stand still.
    has strace || missing+=(strace)
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
    need_rust_component fmt rustfmt
    need_rust_component clippy rust-clippy
}

# need_rust_component SUBCOMMAND PACKAGE : a part of the Rust toolchain, from where the toolchain came from.
need_rust_component() {
    (cd "$root" && cargo "$1" --version >/dev/null 2>&1) && return 0
    if has rustup; then
        say "installing with rustup: ${2#rust-}"
        (cd "$root" && rustup component add "${2#rust-}" >&2)
    else
        install_packages "$2"
    fi
}

need_server() { find_server >/dev/null || install_server; }
