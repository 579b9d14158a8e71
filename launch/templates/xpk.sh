#!/usr/bin/env bash
# One run on GKE through xpk. The image holds this project, its .venv and runsc.
# 75: saved on SIGTERM. 76: another host was missing. Node loss restarts without being named.
set -euo pipefail

CLUSTER=MY_CLUSTER PROJECT=MY_PROJECT ZONE=us-east5-a
IMAGE=MY_REGISTRY/spade_jax:COMMIT
RUN=selfplay-8b

xpk workload create \
  --cluster="$CLUSTER" --project="$PROJECT" --zone="$ZONE" \
  --workload="$RUN" --tpu-type=v5p-128 --num-slices=1 \
  --docker-image="$IMAGE" \
  --max-restarts=100 --restart-on-exit-codes=75,76 \
  --termination-grace-period-seconds=120 \
  --command="python -m launch.train --coordinator=auto --config=CONFIG.py --workdir=gs://MY_BUCKET/$RUN"
