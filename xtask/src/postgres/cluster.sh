# One throw-away PostgreSQL cluster that never outlives its owner.
#
#   sh -c CLUSTER cluster DIR BIN PORT [PREFIX ...]
#
# DIR      fresh directory for everything; removed at the end
# BIN      where initdb and postgres are
# PORT     port on 127.0.0.1
# PREFIX   command that gives up root before the program it is put in front of; may be absent
#
# Standard input is a pipe whose other end only the owner holds. When the owner is gone, whether it
# finished, was interrupted or was killed, the pipe closes and the cluster goes with it.

set -eu
dir=$1 bin=$2 port=$3
shift 3
cd "$dir"
export HOME="$dir" LC_ALL=C
trap 'cd /; rm -rf "$dir"' EXIT

# A real authority and a leaf of it: TLS libraries refuse an authority as a server's certificate.
key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
"$@" openssl req -x509 $key -days 2 -subj '/CN=Gesta test authority' -keyout ca.key -out ca.crt
"$@" openssl req $key -subj '/CN=localhost' -keyout server.key -out server.csr
"$@" openssl x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial \
    -extfile server.ext -out server.crt

"$@" "$bin/initdb" --pgdata="$dir/data" --username=gesta --pwfile=password \
    --auth-host=scram-sha-256 --auth-local=trust --encoding=UTF8 --locale=C --no-instructions

# Stores refuse fsync=off: it stays on although the data is thrown away. A client that connects
# during shutdown and says nothing holds it up until the timeout.
"$@" "$bin/postgres" -D "$dir/data" -c port="$port" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories="$dir" -c max_connections=400 -c fsync=on \
    -c authentication_timeout=15 \
    -c ssl=on -c ssl_cert_file="$dir/server.crt" -c ssl_key_file="$dir/server.key" &
postgres=$!

# The server's own pid file says whom to signal: PREFIX may stay as its parent. Again and again,
# because a shell starts background commands with SIGQUIT ignored: one that arrives before postgres
# installs its own handlers is lost.
exec 3<&0
(
    trap - EXIT
    read -r _ <&3 || true
    while true; do
        read -r pid <data/postmaster.pid && kill -QUIT "$pid" || true
        sleep 0.05
    done
) 2>/dev/null &
watcher=$!

status=0
wait "$postgres" || status=$?
kill "$watcher" 2>/dev/null || true
exit "$status"
