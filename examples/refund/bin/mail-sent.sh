# Reads {"args":{…},"key":"gesta-…"} and says whether the mail of that key went out.
read -r args || [ -n "$args" ]
key=$(printf '%s' "$args" | sed 's/.*"key":"\(gesta-[0-9a-f]*\)".*/\1/')
if [ -f "outside/outbox/$key.json" ]; then
    printf '{"happened":true,"result":{"message":"%s"}}\n' "$key"
else
    echo '{"happened":false}'
fi
