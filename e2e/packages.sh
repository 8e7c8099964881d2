# Python's packages in an environment of their own; to be sourced.

# has_packages ENVIRONMENT NAME==VERSION…: whether these are installed there, in these versions.
has_packages() {
    local environment=$1
    shift
    "$environment/bin/python" -c 'import sys
from importlib.metadata import version
sys.exit(any(version(name) != wanted for name, wanted in (one.split("==") for one in sys.argv[1:])))' "$@" 2>/dev/null
}
