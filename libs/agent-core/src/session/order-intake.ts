import { errorFields, type Log } from '@cloudless/base';
import type { Order } from '@cloudless/api';
import type { NodeReplicas } from '../replica/node-replicas.js';

/**
 * Maximum number of orders that are being stored at the same time. At this number the agent stops
 * reading the session.
 */
const MAX_ORDERS_IN_FLIGHT = 32;

/** Passes the orders of a session on, a bounded number at the same time. */
export class OrderIntake {
  /** Orders that are being stored. */
  private readonly inFlight = new Set<Promise<void>>();

  constructor(
    private readonly replicas: Pick<NodeReplicas, 'handleOrder'>,
    private readonly log: Log,
  ) {}

  /** Begins to handle an order. Resolves when there is room for another order. */
  async accept(order: Order): Promise<void> {
    const handled = this.replicas
      .handleOrder(order)
      .catch((reason: unknown) => {
        this.log.error('order failed', {
          replicaId: order.replicaId,
          revision: order.orderRevision,
          ...errorFields(reason),
        });
      })
      .finally(() => this.inFlight.delete(handled));
    this.inFlight.add(handled);
    if (this.inFlight.size >= MAX_ORDERS_IN_FLIGHT) await Promise.race(this.inFlight);
  }
}
