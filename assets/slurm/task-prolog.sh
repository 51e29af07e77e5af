#!/bin/bash
# Slurm's TaskProlog (slurm.conf: TaskProlog=/etc/slurm/sfapp-task-prolog.sh): let the task's recorders stream to the
# relay. Slurm adds each line `export NAME=VALUE` to the task's environment. The file holds the keys without the
# aggregator's secret, which users of the cluster may read.
port=$((29800 + SLURM_JOB_ID % 1000))
echo "export SFAPP_STREAM=tcp://127.0.0.1:$port"
echo "export SFAPP_STREAM_KEYS=$(cat "${SFAPP_CLIENT_KEYS_FILE:-/etc/sfapp/client.keys}")"
