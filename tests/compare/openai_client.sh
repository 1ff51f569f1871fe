#!/usr/bin/env bash
# Runs the `openai` Python client (PyPI, into a cached virtual environment) against an engine and against prefill, decode
# and proxy. Needs ./check to have built the release.
set -euo pipefail
cd "$(dirname "$0")/../.."
environment=${XDG_CACHE_HOME:-$HOME/.cache}/baton/openai-client
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import openai' 2>/dev/null || "$environment/bin/pip" install --quiet openai
exec "$environment/bin/python" tests/compare/run_against.py tests/compare/openai_client.py
