"""absurd: tasks of checkpointed steps, in PostgreSQL alone. One worker thread and connection a job, for one
connection does one thing at a time. A task's claim outlives its worker: whoever resumes it waits for that."""

import os
import subprocess
import sys
import threading

import psycopg
from absurd_sdk import Absurd

import steps

CLAIM_SECONDS = 2


def client():
    absurd = Absurd(steps.postgres, queue_name="steps")

    @absurd.register_task(name="job")
    def job(params, context):
        for number in range(params["steps"]):
            context.step(f"s{number}", lambda number=number: steps.body(number))

    return absurd


steps.say("ready")
if steps.mode != "resume":
    ctl = os.path.join(os.path.dirname(sys.executable), "absurdctl")
    for command in (["init"], ["create-queue", "steps"]):
        told = os.environ | {"ABSURD_DATABASE_URL": steps.postgres}
        # By this Python: the script names the place where it was installed.
        made = subprocess.run([sys.executable, ctl, *command], env=told, capture_output=True)
        if made.returncode != 0:
            sys.exit(made.stderr.decode())
clients = [client() for _ in range(steps.jobs)]
if steps.mode != "resume":
    for _ in range(steps.jobs):
        clients[0].spawn("job", {"steps": steps.steps})


def work(absurd):
    absurd.work_batch(worker_id=str(id(absurd)), claim_timeout=CLAIM_SECONDS, batch_size=1)


def run():
    threads = [threading.Thread(target=work, args=(absurd,)) for absurd in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def count():
    with psycopg.connect(steps.postgres) as connection:
        return connection.execute("SELECT count(*) FROM absurd.c_steps WHERE status = 'committed'").fetchone()[0]


if steps.mode == "run":
    steps.timed(run, count)
elif steps.mode == "hang":
    run()
else:
    # The claim's end is noticed by one look, and what it held is there for the next.
    while count() < steps.steps:
        work(clients[0])
os._exit(0)
