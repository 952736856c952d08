# Reads {"customer":"ada"} and prints what is known of her.
read -r args || [ -n "$args" ]
customer=$(printf '%s' "$args" | sed 's/.*"customer":"\([a-z]*\)".*/\1/')
printf '{"mail":"%s@example.com","since":2019}\n' "$customer"
