import { create } from '@bufbuild/protobuf';
import {
  CoordinatorMessageSchema,
  EndpointsGoneSchema,
  ReplicaFilesChangedSchema,
  type CoordinatorMessage,
  type DirectSender,
  type Hello,
  type OpenTunnel,
  type Order,
  type ReplicaReport,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { randomHex } from '@cloudless/base';
import type { ApiCaller } from '../access/caller.js';
import type { ApiServerDeps } from '../ports.js';
import { createCoordinatorsMessage } from './known-coordinators.js';
import { negotiateProtocol } from './node-admission.js';
import { createOrderMessage, encodeDirectOrder } from './order-encoder.js';
import { OpenOrders } from './open-orders.js';
import type { OrderMetrics } from './order-metrics.js';
import {
  createOrder,
  hasOrder,
  isAcknowledged,
  isOrphan,
  listPendingOrders,
  maySendOrders,
} from './orders.js';
import { OrphanTracker } from './orphan-tracker.js';
import { SessionOutbox } from './session-outbox.js';
import type { RunningOrphans } from './running-orphans.js';

/**
 * Interval of {@link AgentSession.resendOrders}, and shortest time after which an order is sent
 * again: far longer than a round trip, short enough that a lost order hardly delays a start.
 */
export const RESEND_MS = 1_000;

/** Dependencies of a session; its other input is {@link AgentSessionInit}. */
export interface AgentSessionDeps extends Pick<
  ApiServerDeps,
  'state' | 'clock' | 'log' | 'random' | 'network'
> {
  /**
   * Returns the monotonic time without the time for which the main loop stood still: what agents
   * sent meanwhile has not been read yet.
   */
  readonly runningTimeMs: () => number;
  /** The running orphans of all nodes. */
  readonly runningOrphans: RunningOrphans;
}

/** Input of a new session: the first message of the agent, and the caller. */
export interface AgentSessionInit {
  readonly hello: Hello;
  readonly caller: ApiCaller;
  /** Undefined when the call cannot send directly. */
  readonly directSender: DirectSender | undefined;
}

/** State of the session of one connected agent: its inventory, orders and outgoing messages. */
export class AgentSession {
  readonly nodeId: string;
  /** Random text that identifies the session; the agent sends it with RenewLease. */
  readonly id: string;
  /** Protocol version that both sides use. */
  readonly protocol: number;
  /** Newest epoch whose orders the agent had accepted when the session began. */
  readonly highestEpoch: bigint;
  /** Messages to the agent that were not sent yet. */
  readonly outbox = new SessionOutbox<CoordinatorMessage>();
  /**
   * The received part of the inventory, by replica id; undefined once the inventory is complete.
   */
  inventory: Map<string, ReplicaReport> | undefined = new Map();
  /** Number of the session in `NodeLiveness`; undefined until the inventory is written. */
  number: number | undefined;
  /** True once the session has ended, also because the node has a newer one. */
  hasEnded = false;
  /** Revision of the newest order that the agent has acknowledged, by replica id. */
  private readonly acknowledged = new Map<string, bigint>();
  private readonly openOrders: OpenOrders;
  /**
   * Replicas of the agent that no record assigns to its node; undefined before the first one, as
   * most sessions never have any.
   */
  private orphans: OrphanTracker | undefined;
  private isAdmitted = false;
  /** Sends orders without the pipeline of the call; undefined when the call has none. */
  private readonly directSender: DirectSender | undefined;
  private readonly caller: ApiCaller;

  constructor(
    private readonly deps: AgentSessionDeps,
    metrics: OrderMetrics,
    { hello, caller, directSender }: AgentSessionInit,
  ) {
    this.openOrders = new OpenOrders(metrics);
    this.directSender = directSender;
    this.caller = caller;
    this.nodeId = hello.nodeId;
    this.id = randomHex(deps.random, 16);
    this.protocol = negotiateProtocol(hello);
    this.highestEpoch = hello.highestEpoch;
  }

  /**
   * True once the node counts as alive and its orders were sent. From then on, orders that the
   * agent does not acknowledge are sent again.
   */
  get admitted(): boolean {
    return this.isAdmitted;
  }

  /** True while {@link resendOrders} may have something to send, now or later. */
  get hasOpenOrders(): boolean {
    return this.openOrders.size > 0 || (this.orphans?.size ?? 0) > 0;
  }

  /**
   * Sends all pending orders of the node, then the message Admitted.
   * @param inventory - The complete inventory of the agent.
   */
  admit(inventory: ReadonlyMap<string, ReplicaReport>): void {
    for (const order of this.listPendingOrders()) this.sendOrder(order);
    // A replica whose record was deleted while the inventory arrived is an orphan now.
    const view = this.deps.state.view();
    for (const report of inventory.values())
      this.handleOrphan(report, view.replica(report.replicaId)?.value);
    // Orphans of an earlier session that the agent does not have any more.
    this.deps.runningOrphans.retainOnly(this.nodeId, (id) => this.orphans?.has(id) === true);
    this.isAdmitted = true;
    this.outbox.push(
      'admitted',
      create(CoordinatorMessageSchema, { message: { case: 'admitted', value: {} } }),
    );
  }

  /** Serial of the certificate of the node that counts for the connection now. */
  get serial(): string | undefined {
    return this.caller.credential?.serial;
  }

  /** Names the coordinators of the cluster, so that the agent finds another one. */
  announceCoordinators(): void {
    const message = createCoordinatorsMessage(this.deps.state.view());
    if (message !== undefined) this.outbox.push('coordinators', message);
  }

  /** Asks the agent to renew its certificate. */
  requestRenewal(message: CoordinatorMessage): void {
    this.outbox.push('renewCertificate', message);
  }

  /**
   * Returns a message of {@link outbox} as it is sent. Undefined for an order that has to wait, and
   * for an order or the message that lets a stop go on when orders may no longer be sent: see
   * {@link maySendOrders}.
   * @param isBinary - True when the call encodes its messages in the binary format.
   */
  toSentMessage(queued: CoordinatorMessage, isBinary: boolean): CoordinatorMessage | undefined {
    const { message } = queued;
    if (message.case !== 'order' && message.case !== 'endpointsGone') return queued;
    if (!maySendOrders(this.deps.state)) return undefined;
    // An orphan was reported since the order was queued: a resend repeats the order.
    if (message.case === 'order' && this.deps.runningOrphans.delays(message.value))
      return undefined;
    return isBinary && message.case === 'order' ? createOrderMessage(message.value) : queued;
  }

  /** Asks the agent to open a tunnel. */
  requestTunnel(request: OpenTunnel): void {
    this.outbox.push(
      `tunnel/${request.tunnelId}`,
      create(CoordinatorMessageSchema, { message: { case: 'openTunnel', value: request } }),
    );
  }

  /** Removes a tunnel request that was not sent yet. */
  withdrawTunnel(tunnelId: string): void {
    this.outbox.drop(`tunnel/${tunnelId}`);
  }

  /**
   * Updates orders and orphans from a report, which acknowledges the order that the report names.
   * @param record - The record of the replica; undefined when there is none.
   */
  handleReport(report: ReplicaReport, record: ReplicaRecord | undefined): void {
    const { orderRevision } = report;
    // The id string of the record, so that the session keeps no second copy.
    const replicaId = record?.id ?? report.replicaId;
    const known = this.acknowledged.get(replicaId);
    // Order revision 0: the agent requests that the order is sent again.
    const replacesKnown = known === undefined || orderRevision > known || orderRevision === 0n;
    if (replacesKnown) {
      const isShared = record?.orderRevision === orderRevision;
      this.acknowledged.set(replicaId, isShared ? record.orderRevision : orderRevision);
    }
    this.openOrders.recordAcknowledged(replicaId, orderRevision);
    const isOrphaned = this.handleOrphan(report, record);
    if (isOrphaned) this.acknowledged.delete(replicaId);
    this.trackOrder(
      replicaId,
      record,
      isOrphaned ? undefined : replacesKnown ? orderRevision : known,
    );
    if (orderRevision === 0n) this.openOrders.request(replicaId, this.deps.runningTimeMs());
  }

  /**
   * Sends the order that follows from a change of a replica on the node. Without effect until the
   * inventory is complete.
   */
  handleReplicaChange(before: ReplicaRecord | undefined, after: ReplicaRecord | undefined): void {
    if (this.inventory !== undefined) return;
    if (after === undefined) {
      if (before !== undefined) this.handleReplicaDeleted(before);
      return;
    }
    if (before?.orderRevision === after.orderRevision) return;
    // The agent has not acknowledged the order: it holds no newer order than this store has issued
    // for the replica, see RollbackDetector.
    const order = createOrder(this.deps, after);
    if (order === undefined) this.trackOrder(after.id, after, undefined);
    else this.sendOrder(order);
  }

  /**
   * Sends the orders again that are due and not acknowledged. Without effect before the admission,
   * while no orders may be sent at all, and while the connection is backed up: the
   * agent has not received the earlier messages yet.
   */
  resendOrders(): void {
    if (!this.isAdmitted || !maySendOrders(this.deps.state)) return;
    if (this.outbox.size > 0) return;
    const view = this.deps.state.view();
    for (const replicaId of this.openOrders.listDue(this.deps.runningTimeMs())) {
      const replica = view.replica(replicaId)?.value;
      const acknowledged = this.acknowledged.get(replicaId);
      this.trackOrder(replicaId, replica, acknowledged);
      if (replica === undefined || this.isSettled(replica, acknowledged)) continue;
      const order = createOrder(this.deps, replica);
      if (order !== undefined) this.sendOrder(order);
    }
    this.orphans?.resendOrders();
  }

  /**
   * Looks at every replica of the node for orders that are not acknowledged, and sends them with
   * the next {@link resendOrders}. For changes that concern all orders, and as a safety net.
   */
  trackAllOrders(): void {
    if (!this.isAdmitted) return;
    for (const { value } of this.deps.state.view().replicasOn(this.nodeId))
      this.trackOrder(value.id, value, this.acknowledged.get(value.id));
  }

  /** Tracks the order of a replica exactly while the agent has to acknowledge it. */
  private trackOrder(
    replicaId: string,
    replica: ReplicaRecord | undefined,
    acknowledged: bigint | undefined,
  ): void {
    if (replica === undefined || this.isSettled(replica, acknowledged))
      this.openOrders.untrack(replicaId);
    else if (this.isAdmitted) this.openOrders.track(replicaId, this.deps.runningTimeMs());
  }

  /** Returns true when the agent needs no order for a replica. */
  private isSettled(replica: ReplicaRecord, acknowledged: bigint | undefined): boolean {
    return (
      replica.nodeId !== this.nodeId ||
      !hasOrder(replica) ||
      isAcknowledged(this.deps, replica, acknowledged)
    );
  }

  /** @returns True when the reported replica is an orphan. */
  private handleOrphan(report: ReplicaReport, record: ReplicaRecord | undefined): boolean {
    const isOrphaned = isOrphan(record, this.nodeId, report);
    if (isOrphaned) this.ensureOrphans().handleReport(report);
    else this.orphans?.remove(report.replicaId);
    return isOrphaned;
  }

  private ensureOrphans(): OrphanTracker {
    return (this.orphans ??= new OrphanTracker(this.deps, this.nodeId, RESEND_MS, (order) => {
      this.openOrders.recordSent(order);
      this.pushOrder(order);
    }));
  }

  private listPendingOrders(): readonly Order[] {
    return listPendingOrders(this.deps, this.nodeId, this.acknowledged);
  }

  private handleReplicaDeleted(replica: ReplicaRecord): void {
    this.acknowledged.delete(replica.id);
    this.openOrders.untrack(replica.id);
    this.ensureOrphans().handleRecordDeleted(replica);
  }

  private sendOrder(order: Order): void {
    const { runningTimeMs, runningOrphans } = this.deps;
    // An order that has to wait is due at each resend.
    if (runningOrphans.delays(order))
      return this.openOrders.track(order.replicaId, runningTimeMs());
    this.openOrders.recordTrackedSent(order, this.deps.runningTimeMs());
    this.pushOrder(order);
  }

  private pushOrder(order: Order): void {
    if (!this.outbox.canSendDirectly || !this.sendEncoded(order))
      this.outbox.push(`order/${order.replicaId}`, {
        $typeName: CoordinatorMessageSchema.typeName,
        message: { case: 'order', value: order },
      });
    const { replicaId, order: content } = order;
    // The order is sent again, or to a new session, after the proxies have applied the removal.
    if (content.case === 'stop' && content.value.awaitEndpointsGone !== undefined)
      if (this.deps.network.isGone(replicaId)) this.sendEndpointsGone(replicaId);
  }

  /** @returns False when the order has to wait in the outbox, or may not be sent. */
  private sendEncoded(order: Order): boolean {
    if (this.directSender === undefined || !maySendOrders(this.deps.state)) return false;
    let bytes: Uint8Array;
    try {
      bytes = encodeDirectOrder(order);
    } catch {
      return false; // the call fails when it sends the order, as with any message
    }
    return this.directSender.send(bytes);
  }

  /** Notifies the agent that files of a replica have a new version. */
  sendFilesChanged(replicaId: string): void {
    const value = create(ReplicaFilesChangedSchema, { replicaIds: [replicaId] });
    this.outbox.push(
      `files/${replicaId}`,
      create(CoordinatorMessageSchema, { message: { case: 'filesChanged', value } }),
    );
  }

  /** Tells the agent that no network proxy chooses a leaving replica any more. */
  sendEndpointsGone(replicaId: string): void {
    const value = create(EndpointsGoneSchema, { replicaIds: [replicaId] });
    this.outbox.push(
      `gone/${replicaId}`,
      create(CoordinatorMessageSchema, { message: { case: 'endpointsGone', value } }),
    );
  }
}
