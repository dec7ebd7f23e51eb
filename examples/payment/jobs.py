"""The app: take the money for an order, wait for the provider's word, hand the parcel to the carrier, wait again, tell.

awa-pool payment.jobs:client --workers 2        # from the folder `examples`; run.py starts everything

The same job three times. Which to take: `buy_parked` where an answer may take hours (no process needs to live
meanwhile), the others where it takes seconds or minutes and the code should read from top to bottom.

After a crash the handler runs again from the top, and asks again. So both services are told the number of the order, by
which they know that they have seen it: one charge, one parcel, however often they are asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from dataclasses import dataclass
from typing import Any

from awa_pool import CallbackToken, Cancel, Client, Job, WaitForCallback
from awa_pool.receiver import build_callback_url

client = Client()
QUEUE = "payment"
ANSWER_WITHIN_S = 3600.0


@dataclass
class Purchase:
    """An order, and what it costs."""

    order: str
    cents: int


@dataclass
class BuyWaiting(Purchase):
    """Waits in a plain handler."""


@dataclass
class BuyAsync(Purchase):
    """Waits in an async handler."""


@dataclass
class BuyParked(Purchase):
    """Waits with no handler alive."""


@dataclass
class Tell:
    """Tell the customer: exists exactly if the order's job has completed."""

    order: str
    tracking: str


@client.task(BuyWaiting, queue=QUEUE, waits=True)
def buy_waiting(job: Job[BuyWaiting]) -> object:
    """Ask, and wait in between: the slot of this handler is free for others meanwhile."""
    token = job.register_callback(timeout_seconds=ANSWER_WITHIN_S)
    ask("charges", job.args, token)
    paid = job.wait_for_callback(token)
    if not paid["charge"]:
        return Cancel(f"not paid: {paid['why']}")

    token = job.register_callback(timeout_seconds=ANSWER_WITHIN_S)
    ask("parcels", job.args, token)
    parcel = job.wait_for_callback(token)
    job.enqueue_on_completion(Tell(job.args.order, parcel["tracking"]))
    return None


@client.task(BuyAsync, queue=QUEUE)
async def buy_async(job: Job[BuyAsync]) -> object:
    """The same, awaited."""
    token = await job.register_callback(timeout_seconds=ANSWER_WITHIN_S)
    await asyncio.to_thread(ask, "charges", job.args, token)
    paid = await job.wait_for_callback(token)
    if not paid["charge"]:
        return Cancel(f"not paid: {paid['why']}")

    token = await job.register_callback(timeout_seconds=ANSWER_WITHIN_S)
    await asyncio.to_thread(ask, "parcels", job.args, token)
    parcel = await job.wait_for_callback(token)
    job.enqueue_on_completion(Tell(job.args.order, parcel["tracking"]))
    return None


@client.task(BuyParked, queue=QUEUE)
def buy_parked(job: Job[BuyParked]) -> object:
    """Runs from the top after each answer, and looks at the newest to see how far it is."""
    answer = job.resumed.payload if job.resumed else {}
    if "tracking" in answer:
        job.enqueue_on_completion(Tell(job.args.order, answer["tracking"]))
        return None
    if "charge" in answer and not answer["charge"]:
        return Cancel(f"not paid: {answer['why']}")
    token = job.register_callback(timeout_seconds=ANSWER_WITHIN_S)
    ask("parcels" if "charge" in answer else "charges", job.args, token)
    return WaitForCallback(token)


@client.task(Tell, queue=QUEUE)
def tell(job: Job[Tell]) -> None:
    """Write to the customer."""
    print(f"order {job.args.order}: paid and on its way, {job.args.tracking}", flush=True)


def ask(what: str, purchase: Purchase, token: CallbackToken) -> None:
    """Ask the outside world for a charge or a parcel; it answers later, at the address that it is given."""
    receiver = os.environ.get("PAYMENT_RECEIVER", "http://127.0.0.1:4000")
    outside = os.environ.get("PAYMENT_OUTSIDE", "http://127.0.0.1:4010")
    letter: dict[str, Any] = {
        "order": purchase.order,
        "cents": purchase.cents,
        "answer_to": build_callback_url(receiver, token.id, "resume"),
    }
    request = urllib.request.Request(
        f"{outside}/{what}", json.dumps(letter).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10):  # an error fails the attempt, which tries again
        pass
