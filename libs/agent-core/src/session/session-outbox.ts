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
 * Maximum number of queued refusals. Older ones are dropped, as the coordinator repeats every
 * refused order.
 */
const MAX_WAITING_REFUSALS = 256;

/**
 * Messages that wait to be sent in one session. The size is bounded: a replica has at most one
 * queued report, whose content is read when it is sent.
 */
export class SessionOutbox implements AsyncIterable<AgentMessage> {
  private readonly changed = new Set<string>();
  private readonly gone = new Map<string, ReplicaReport>();
  private readonly refused = new Map<string, OrderRefused>();
  private tunnels: TunnelRefused[] = [];
  private usage: Usage | undefined;
  private goodbye: string | undefined;
  private ended = false;
  private wake: (() => void) | undefined;

  /**
   * @param first - Creates Hello and inventory, which are sent before anything else.
   * @param reportOf - Returns the current report of a replica; undefined when the replica no longer
   *   exists.
   */
  constructor(
    private readonly first: () => Iterable<AgentMessage['message']>,
    private readonly reportOf: (replicaId: string) => ReplicaReport | undefined,
  ) {}

  reportChanged(replicaId: string): void {
    this.changed.add(replicaId);
    this.signal();
  }

  reportGone(report: ReplicaReport): void {
    this.changed.delete(report.replicaId);
    this.gone.set(report.replicaId, report);
    this.signal();
  }

  refuseOrder(refusal: OrderRefused): void {
    this.refused.delete(refusal.replicaId);
    this.refused.set(refusal.replicaId, refusal);
    if (this.refused.size > MAX_WAITING_REFUSALS)
      this.refused.delete([...this.refused.keys()][0] ?? '');
    this.signal();
  }

  refuseTunnel(refusal: TunnelRefused): void {
    this.tunnels = [...this.tunnels, refusal].slice(-MAX_WAITING_REFUSALS);
    this.signal();
  }

  sendUsage(usage: Usage): void {
    this.usage = usage;
    this.signal();
  }

  /** Sends a Goodbye after all queued messages, then ends. */
  sayGoodbye(reason: string): void {
    this.goodbye = reason;
    this.signal();
  }

  /** Ends at once and drops queued messages. */
  end(): void {
    this.ended = true;
    this.signal();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<AgentMessage> {
    for (const message of this.first()) yield create(AgentMessageSchema, { message });
    while (!this.ended) {
      const message = this.next();
      if (message !== undefined) yield create(AgentMessageSchema, { message });
      else if (this.goodbye !== undefined) {
        yield create(AgentMessageSchema, {
          message: { case: 'goodbye', value: create(GoodbyeSchema, { reason: this.goodbye }) },
        });
        return;
      } else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  private next(): AgentMessage['message'] | undefined {
    for (const [replicaId, value] of this.refused) {
      this.refused.delete(replicaId);
      return { case: 'refused', value };
    }
    for (const [replicaId, value] of this.gone) {
      this.gone.delete(replicaId);
      return { case: 'report', value };
    }
    for (const replicaId of this.changed) {
      this.changed.delete(replicaId);
      const value = this.reportOf(replicaId);
      if (value !== undefined) return { case: 'report', value };
    }
    const tunnel = this.tunnels.shift();
    if (tunnel !== undefined) return { case: 'tunnelRefused', value: tunnel };
    if (this.usage !== undefined) {
      const value = this.usage;
      this.usage = undefined;
      return { case: 'usage', value };
    }
    return undefined;
  }

  private signal(): void {
    this.wake?.();
    this.wake = undefined;
  }
}
