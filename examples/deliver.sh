#!/bin/sh
# A build in the shell: hand the state over while it runs, the results at its end, and stop the chain if that fails.
#
#     sh examples/deliver.sh OWNER/NAME RUN_ID
#
# Rehearse it without a token: CONVEYOR_REHEARSAL=DIR keeps a local Hub in that directory.
set -eu
repository=$1
run_id=$2
hub=${CONVEYOR_REHEARSAL:+--local-hub $CONVEYOR_REHEARSAL}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/state" "$work/results"

for step in 1 2; do
    echo "{\"step\": $step}" > "$work/state/state.json"
    # The hand-over is durable even if this ends early: status 3 means "left over", and `conveyor drain` continues.
    # shellcheck disable=SC2086
    conveyor deliver "$work/state" --to "$repository" --run "$run_id" --within 30 $hub || [ $? -eq 3 ]
done

echo '{"loss": 0.1}' > "$work/results/metrics.json"
# shellcheck disable=SC2086
conveyor deliver "$work/results" --to "$repository" --run "$run_id" --bundle --role metrics.json=metrics $hub
# shellcheck disable=SC2086
conveyor drain $hub
