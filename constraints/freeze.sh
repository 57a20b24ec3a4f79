#!/usr/bin/env bash
# Resolve the extras anew in an empty environment and write the pins. Usage: constraints/freeze.sh
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet "torch==2.13.0" -e ".[local,dev]"
{
  echo "# Made by constraints/freeze.sh; every package of the extras local and dev."
  "$scratch/venv/bin/pip" freeze --all --exclude-editable --exclude corag_ray --exclude pip | sed 's/+cpu$//' | grep -v ' @ '
} > constraints/cpu.txt
