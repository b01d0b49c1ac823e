# shellcheck shell=bash
# Shared by scripts/servers and scripts/server-suite: a private apt, with the machine's mirror and keys but other
# suites and folders. To be sourced after lib.sh; nothing is installed by it.

# Sets `apt_folder`, which goes when the script ends.
make_apt_folder() {
    apt_folder=$(mktemp -d)
    leftovers+=("$apt_folder")
    # apt drops its rights for downloads where it can; its user must reach the folder then.
    chmod 755 "$apt_folder"
}

# The suites that have versions of interest, those with the oldest servers first.
suites() {
    local id codename
    id=$(. /etc/os-release && printf '%s' "${ID:-}")
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    case "${TENURE_SUITES:+given}$id" in
        given*) printf '%s\n' "$TENURE_SUITES" ;;
        debian) printf '%s\n' bookworm bookworm-backports trixie sid ;;
        ubuntu) printf '%s\n' noble-updates questing resolute-updates devel ;;
        *) printf '%s\n' "$codename" ;;
    esac
}

private_apt_get() { apt-get -c "$apt_folder/apt.conf" "$@"; }
private_apt_cache() { apt-cache -c "$apt_folder/apt.conf" "$@"; }
private_candidate() { private_apt_cache policy "$1" | candidate_of_policy; }

# use_suite SUITE [Sources] : points the private apt to one suite (and the one it builds on), at the first of the
# machine's mirrors that has it: its packages, or their sources.
use_suite() {
    local suite=$1 target=${2:-Packages} type=deb mirror line_options key
    [ "$target" = Packages ] || type=deb-src
    for key in "/usr/share/keyrings/$(. /etc/os-release && printf '%s' "$ID")"-archive-keyring.*; do
        [ ! -e "$key" ] || line_options="signed-by=$key"
    done
    write_apt_configuration "$suite"
    for mirror in $(mirrors); do
        local name
        for name in "${suite%-*}" "$suite"; do
            # Only the package lists: no translations, icons and whatever else the machine's apt is set up to fetch.
            printf '%s [target=%s %s] %s %s %s\n' \
                "$type" "$target" "${line_options:-}" "$mirror" "$name" "$(components)"
        done | sort -u >"$apt_folder/sources.list"
        if private_apt_get update -qq >"$apt_folder/update.log" 2>&1; then
            if [ "$target" = Sources ] || [ -n "$(private_candidate libc6)" ]; then return 0; fi
        fi
        sed -n 's/^[EW]: /    /p' "$apt_folder/update.log" >&2
    done
    return 1
}

write_apt_configuration() {
    mkdir -p "$apt_folder/lists/partial" "$apt_folder/cache/archives/partial" "$apt_folder/packages"
    : >"$apt_folder/status"
    cat >"$apt_folder/apt.conf" <<EOF
Dir::Etc::sourcelist "$apt_folder/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "$apt_folder";
Dir::State::lists "$apt_folder/lists";
Dir::State::status "$apt_folder/status";
Dir::Cache "$apt_folder/cache";
Dir::Cache::pkgcache "pkgcache.bin";
APT::Default-Release "$1";
APT::Get::List-Cleanup "false";
Acquire::Retries "3";
// A mirror may lag or be frozen on purpose; signatures are checked all the same.
Acquire::Check-Valid-Until "false";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
APT::Architectures { "$(dpkg --print-architecture)"; };
// The packages are unpacked by whoever calls this, so apt's own user need not reach them.
APT::Sandbox::User "";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
EOF
}

# The addresses from which this machine takes its own suite, as apt itself reads its sources; those of other suites
# (a security archive, other vendors) have no base suite to fetch from.
mirrors() {
    local codename
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    apt-get update --print-uris 2>/dev/null |
        sed -n "s|^'\(.*\)/dists/\([^/]*\)/InRelease'.*|\1 \2|p" |
        awk -v codename="$codename" '($2 == codename || $2 !~ /-/) && !seen[$1]++ { print $1 }'
}

# Ubuntu keeps the servers in `universe`.
components() { (. /etc/os-release && [ "$ID" = ubuntu ] && printf 'main universe') || printf 'main'; }

# The packages given and every library package they name, directly or not; not the programs (adduser, perl ...) that
# only their installation needs.
closure() {
    local found=" $* " frontier=("$@") package next
    while [ ${#frontier[@]} -gt 0 ]; do
        next=()
        for package in $(private_apt_cache depends --important "${frontier[@]}" |
            sed -n 's/^ *|\{0,1\}\(Pre\)\{0,1\}Depends: *\([^<>: ]*\).*/\2/p' | sort -u); do
            case $package in lib* | lua-*) ;; *) continue ;; esac
            case $found in *" $package "*) continue ;; esac
            found+="$package "
            next+=("$package")
        done
        frontier=("${next[@]}")
    done
    printf '%s' "$found"
}
