"""LangGraph: a graph whose one node leads to itself, each round a checkpoint that is durable before the
next (`durability="sync"`). Many jobs are threads over one checkpointer."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

import steps


class State(TypedDict):
    number: int
    result: dict


def node(state):
    return {"number": state["number"] + 1, "result": steps.body(state["number"])}


def more(state):
    return "step" if state["number"] < steps.steps else END


def saver():
    if steps.store == "sqlite":
        file = os.path.join(steps.place, "langgraph.sqlite")
        return SqliteSaver(sqlite3.connect(file, check_same_thread=False))
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    return PostgresSaver(ConnectionPool(steps.postgres, min_size=4, max_size=16, kwargs=options))


steps.say("ready")
checkpoints = saver()
checkpoints.setup()
graph = StateGraph(State).add_node("step", node).add_edge(START, "step")
graph = graph.add_conditional_edges("step", more, ["step", END]).compile(checkpointer=checkpoints)


def setting(number):
    return {"configurable": {"thread_id": str(number)}, "recursion_limit": steps.steps + 10}


def job(number, begin={"number": 0}):
    graph.invoke(begin, setting(number), durability="sync")


def run():
    with ThreadPoolExecutor(steps.jobs) as threads:
        list(threads.map(job, range(steps.jobs)))


def count():
    """What the newest checkpoint of each job has counted, and no more than there are checkpoints."""
    reached = sum(graph.get_state(setting(job)).values["number"] for job in range(steps.jobs))
    rows = sum(1 for job in range(steps.jobs) for _ in checkpoints.list(setting(job)))
    return min(reached, rows)


if steps.mode == "run":
    steps.timed(run, count)
else:
    job(0, None if steps.mode == "resume" else {"number": 0})
os._exit(0)
