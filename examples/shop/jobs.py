"""A small shop: what its jobs look like, in the kinds of handlers there are.

awa-pool shop.jobs:client --workers 4        # from the folder `examples`
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from datetime import timedelta

from awa_pool import Cancel, Client, Job, RetryAfter, TerminalError

client = Client()


@dataclass
class RenderInvoice:
    """Make the invoice of an order; `pages` says how much work that is."""

    order_id: int
    pages: int = 1


@dataclass
class SendReceipt:
    """Send the receipt of an order by e-mail."""

    order_id: int
    address: str


@dataclass
class ChargeCard:
    """Take the money for an order."""

    order_id: int
    cents: int


@client.task(RenderInvoice, queue="reports", max_attempts=5)
def render_invoice(job: Job[RenderInvoice]) -> None:
    """Burn CPU, one page after the other: a worker process gives this job a core of its own."""
    for page in range(job.args.pages):
        if job.is_cancelled():  # a long handler asks now and then
            return
        digest = hashlib.pbkdf2_hmac("sha256", f"{job.args.order_id}:{page}".encode(), b"shop", 20_000)
        print(f"page {page + 1} of {job.args.pages}: {digest.hex()[:12]}")


@client.task(SendReceipt, queue="mail", backoff=timedelta(seconds=30))
async def send_receipt(job: Job[SendReceipt]) -> None:
    """Wait for somebody else: hundreds of these run at once in one worker."""
    if "@" not in job.args.address:
        raise TerminalError(f"order {job.args.order_id} has no usable address")  # no retry would mend that
    await asyncio.sleep(0.05)


@client.task(ChargeCard, queue="payments", max_attempts=3)
def charge_card(job: Job[ChargeCard]) -> RetryAfter | Cancel | None:
    """Answer in three ways: done, not yet, never."""
    if job.args.cents == 0:
        return Cancel("nothing to pay")
    if job.args.order_id % 10 == 0 and job.attempt == 1:
        return RetryAfter(2, "the bank is busy")
    return None
