"""What every driver in Python shares: what it is asked for, and how it answers.

A driver is started as `DRIVER run|hang|resume JOBS STEPS`, with STEPS_STORE (`sqlite`, `postgres` or `own`),
STEPS_PLACE (a directory of its own) and STEPS_POSTGRES (a database of its own) in its environment.
It answers on standard output, a line at a time:

- `ready` once its libraries are loaded;
- `step` when the body of the last step is entered by `hang`, which then waits to be killed, or by `resume`;
- `done SECONDS STEPS` at the end of `run`: how long the jobs took, and how many steps its store then shows.
"""

import os
import signal
import sys
import threading
import time

mode, jobs, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = os.environ["STEPS_STORE"]
place = os.environ["STEPS_PLACE"]
postgres = os.environ.get("STEPS_POSTGRES", "")


def end_with_whoever_started_this():
    """Standard input ends when that process does."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


threading.Thread(target=end_with_whoever_started_this, daemon=True).start()


def say(line):
    print(line, flush=True)


def body(step):
    """The step: it does nothing, but for the last one of a job that is to be killed."""
    if mode != "run" and step == steps - 1:
        say("step")
        if mode == "hang":
            threading.Event().wait()
    return {"ok": True}


def timed(work, count):
    """Times the work, then asks the store what it shows."""
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    say(f"done {seconds} {count()}")
