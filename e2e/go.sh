# shellcheck shell=bash
# What tells a machine without Go, or without the modules of a build, from sources that are wrong. Sourced by what builds with Go.

# What Go says of a module that cannot be fetched, of sources that it is too old for, and of a machine that has no room for either. A package that no module has, or a sum that is missing or another, is
# wrong in the sources: nobody is to take that for a machine without network.
not_to_be_had='GOPROXY=off|(Get|Post|Head) "http|reading http|dial tcp|no such host|server misbehaving|i/o timeout|deadline exceeded|connection re(set|fused)'
not_to_be_had+='|unexpected EOF|TLS handshake|x509: |stream error|ls-remote|git fetch|unrecognized import path|requires go >= '
not_to_be_had+='|could not create module cache|module cache not found|build cache is required|no space left|read-only file system|permission denied|executable file not found'

# is_go_too_old: whether Go is from before 1.21, which does not understand the `go` lines of today, and calls them invalid instead of asking for another Go.
is_go_too_old() {
    local version
    version=$(go env GOVERSION 2>/dev/null)
    [[ $version =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -lt 21 ]
}
