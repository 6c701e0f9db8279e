#!/bin/sh
# Stands in for rustdoc below `cargo test --doc`, whose arguments name what is built already: documents the crate
# instead of running the examples in its comments.
set -eu
for arg; do
    shift
    case $arg in
        --test | --nocapture) ;;
        *) set -- "$@" "$arg" ;;
    esac
done
exec rustdoc "$@" --out-dir "$HOLDFAST_DOCUMENTATION"
