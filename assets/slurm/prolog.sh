#!/bin/bash
# Slurm's Prolog (slurm.conf: Prolog=/etc/slurm/sfapp-prolog.sh): start one relay for the job's ranks on this node.
# It never fails a job: without a relay, ranks write their packets to their own folder.
aggregator=${SFAPP_AGGREGATOR:-tcp://sfapp.example.org:29765}
keys=${SFAPP_KEYS_FILE:-/etc/sfapp/stream.keys}
folder=${SFAPP_RELAYS:-/run/sfapp}
port=$((29800 + SLURM_JOB_ID % 1000))

mkdir -p -m 755 "$folder"
setsid sfapp relay "$aggregator" --keys "$keys" --listen "tcp://127.0.0.1:$port" \
	</dev/null >"$folder/relay-$SLURM_JOB_ID.log" 2>&1 &
echo $! >"$folder/relay-$SLURM_JOB_ID.pid"
exit 0
