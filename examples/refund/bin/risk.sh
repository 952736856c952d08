# Prints a score. The first call for a job is turned away with exit code 75, "try again later".
mkdir -p outside/asked
if [ ! -e "outside/asked/$GESTA_TRAJECTORY" ]; then
    : > "outside/asked/$GESTA_TRAJECTORY"
    echo "the scoring service is starting, come back in a moment" >&2
    exit 75
fi
echo '{"score":7}'
