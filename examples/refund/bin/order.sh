# Reads {"order":1042} and prints that order. Exit code 66 says: there is no such order.
read -r args || [ -n "$args" ]
order=$(printf '%s' "$args" | sed 's/.*"order":\([0-9]*\).*/\1/')
[ -f "orders/$order.json" ] || { echo "there is no order $order" >&2; exit 66; }
cat "orders/$order.json"
