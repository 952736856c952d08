"""DBOS Transact: a workflow whose steps are decorated functions. SQLite is put into WAL mode, which is
faster than what it has by itself."""

import logging
import os
import sqlite3

import dbos
import psycopg
from dbos import DBOS

import steps

file = os.path.join(steps.place, "dbos.sqlite")
if steps.store == "sqlite":
    url = f"sqlite:///{file}"
    sqlite3.connect(file).execute("PRAGMA journal_mode=WAL").fetchone()
else:
    url = steps.postgres

config = {"name": "steps", "system_database_url": url, "application_version": "1", "executor_id": "one"}
DBOS(config=config | {"log_level": "ERROR", "run_admin_server": False})


@DBOS.step()
def step(number):
    return steps.body(number)


@DBOS.workflow()
def job(count):
    for number in range(count):
        step(number)


def run():
    handles = [DBOS.start_workflow(job, steps.steps) for _ in range(steps.jobs)]
    for handle in handles:
        handle.get_result()


def count():
    if steps.store == "sqlite":
        return sqlite3.connect(file).execute("SELECT count(*) FROM operation_outputs").fetchone()[0]
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM dbos.operation_outputs").fetchone()[0]


steps.say("ready")
logging.getLogger("dbos").setLevel(logging.ERROR)
# What an earlier process has left is taken up by this.
DBOS.launch()
if steps.mode == "run":
    steps.timed(run, count)
elif steps.mode == "hang":
    run()
else:
    for status in DBOS.list_workflows():
        DBOS.retrieve_workflow(status.workflow_id).get_result()
os._exit(0)
