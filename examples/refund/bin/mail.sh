# Sends a mail: into a file of the outbox, named by the key.
read -r args || [ -n "$args" ]
mkdir -p outside/outbox
printf '%s\n' "$args" > "outside/outbox/.$GESTA_KEY"
mv "outside/outbox/.$GESTA_KEY" "outside/outbox/$GESTA_KEY.json"
printf '{"message":"%s"}\n' "$GESTA_KEY"
