# Pays a refund, once per key: whoever links the key's file first has paid, everybody else is told
# what that payment was. `ln` is atomic, so this holds for two calls at the same moment too.
read -r args || [ -n "$args" ]
mkdir -p outside/ledger
mine="outside/ledger/.$$"
printf '{"refund":"rf_%s","paid":%s}\n' "$(printf '%s' "$GESTA_KEY" | cut -c 7-14)" "$args" > "$mine"
ln "$mine" "outside/ledger/$GESTA_KEY.json" 2> /dev/null
rm -f "$mine"
cat "outside/ledger/$GESTA_KEY.json"
