"""Put the jobs of a hundred orders into the queue.

python -m shop.orders                        # from the folder `examples`
"""

from __future__ import annotations

from shop.jobs import ChargeCard, RenderInvoice, SendReceipt, client


def main() -> None:
    """Put them in, all or nothing."""
    orders = range(1, 101)
    client.insert_many(
        [ChargeCard(order, order * 250) for order in orders]
        + [RenderInvoice(order, 1 + order % 5) for order in orders]
        + [SendReceipt(order, f"customer{order}@example.com") for order in orders]
    )
    print("300 jobs are waiting")


if __name__ == "__main__":
    main()
