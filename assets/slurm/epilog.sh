#!/bin/bash
# Slurm's Epilog (slurm.conf: Epilog=/etc/slurm/sfapp-epilog.sh): stop the job's relay on this node.
folder=${SFAPP_RELAYS:-/run/sfapp}
if read -r relay <"$folder/relay-$SLURM_JOB_ID.pid"; then
	kill "$relay"
fi 2>/dev/null
rm -f "$folder/relay-$SLURM_JOB_ID.pid" "$folder/relay-$SLURM_JOB_ID.log"
exit 0
