import { create } from '@bufbuild/protobuf';
import {
  AgentMessageSchema,
  GoodbyeSchema,
  type AgentMessage,
  type OrderRefused,
  type ReplicaReport,
  type TunnelRefused,
  type Usage,
} from '@cloudless/api';

/**
 * Maximum number of queued refusals of orders, and of tunnels. Older refusals are dropped: the
 * coordinator repeats a refused order, and the call of a tunnel ends at its dial timeout.
 */
const MAX_WAITING_REFUSALS = 256;

/** Content of a Goodbye. */
export interface Departure {
  readonly reason: string;
  /** True when the replicas run on without the agent, which is expected to return. */
  readonly replicasContinue: boolean;
}

/**
 * Messages that wait to be sent in one session. The size is bounded: a replica has at most one
 * queued report, whose content is read when the report is sent.
 */
export class SessionOutbox implements AsyncIterable<AgentMessage> {
  private readonly changedReplicas = new Set<string>();
  private readonly forgottenReports = new Map<string, ReplicaReport>();
  private readonly orderRefusals = new Map<string, OrderRefused>();
  private tunnelRefusals: TunnelRefused[] = [];
  private usage: Usage | undefined;
  private goodbye: Departure | undefined;
  private ended = false;
  private wake: (() => void) | undefined;

  /**
   * @param createFirstMessages - Creates Hello and inventory, which are sent before all other
   *   messages.
   * @param findReport - Returns the current report of a replica; undefined when the replica no
   *   longer exists.
   */
  constructor(
    private readonly createFirstMessages: () => Iterable<AgentMessage['message']>,
    private readonly findReport: (replicaId: string) => ReplicaReport | undefined,
  ) {}

  /** Queues the report of a replica. */
  reportChanged(replicaId: string): void {
    this.changedReplicas.add(replicaId);
    this.wakeReader();
  }

  /** Queues the report that acknowledges a forget order, instead of a queued report. */
  reportForgotten(report: ReplicaReport): void {
    this.changedReplicas.delete(report.replicaId);
    this.forgottenReports.set(report.replicaId, report);
    this.wakeReader();
  }

  /** Queues the refusal of an order, instead of a queued refusal for the same replica. */
  refuseOrder(refusal: OrderRefused): void {
    this.orderRefusals.delete(refusal.replicaId);
    this.orderRefusals.set(refusal.replicaId, refusal);
    if (this.orderRefusals.size > MAX_WAITING_REFUSALS)
      this.orderRefusals.delete([...this.orderRefusals.keys()][0] ?? '');
    this.wakeReader();
  }

  /** Queues the refusal of a tunnel. */
  refuseTunnel(refusal: TunnelRefused): void {
    this.tunnelRefusals = [...this.tunnelRefusals, refusal].slice(-MAX_WAITING_REFUSALS);
    this.wakeReader();
  }

  /** Queues the usage, instead of queued usage. */
  sendUsage(usage: Usage): void {
    this.usage = usage;
    this.wakeReader();
  }

  /** Queues a Goodbye after all other messages; the messages end after the Goodbye. */
  sendGoodbye(departure: Departure): void {
    this.goodbye = departure;
    this.wakeReader();
  }

  /** Ends the messages at once and drops queued messages. */
  end(): void {
    this.ended = true;
    this.wakeReader();
  }

  /** Yields the messages in the order of their importance. Can be read once. */
  async *[Symbol.asyncIterator](): AsyncGenerator<AgentMessage> {
    for (const message of this.createFirstMessages()) yield create(AgentMessageSchema, { message });
    while (!this.ended) {
      const message = this.dequeue();
      if (message !== undefined) yield create(AgentMessageSchema, { message });
      else if (this.goodbye !== undefined) {
        yield create(AgentMessageSchema, {
          message: { case: 'goodbye', value: create(GoodbyeSchema, this.goodbye) },
        });
        return;
      } else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  private dequeue(): AgentMessage['message'] | undefined {
    for (const [replicaId, value] of this.orderRefusals) {
      this.orderRefusals.delete(replicaId);
      return { case: 'refused', value };
    }
    for (const [replicaId, value] of this.forgottenReports) {
      this.forgottenReports.delete(replicaId);
      return { case: 'report', value };
    }
    for (const replicaId of this.changedReplicas) {
      this.changedReplicas.delete(replicaId);
      const value = this.findReport(replicaId);
      if (value !== undefined) return { case: 'report', value };
    }
    const tunnel = this.tunnelRefusals.shift();
    if (tunnel !== undefined) return { case: 'tunnelRefused', value: tunnel };
    if (this.usage !== undefined) {
      const value = this.usage;
      this.usage = undefined;
      return { case: 'usage', value };
    }
    return undefined;
  }

  private wakeReader(): void {
    this.wake?.();
    this.wake = undefined;
  }
}
