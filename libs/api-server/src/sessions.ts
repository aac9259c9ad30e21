import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorMessageSchema,
  HeartbeatResponseSchema,
  NodeStatus_Phase as NodePhase,
  WelcomeSchema,
  type AgentMessage,
  type CoordinatorMessage,
  type HeartbeatRequest,
  type HeartbeatResponse,
  type OpenTunnel,
  type Order,
  type ReplicaReport,
  type TunnelRefused,
  type Welcome,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError, errorFields, type Timer } from '@cloudless/base';
import type { RecordChange } from '@cloudless/cluster-state';
import type { HandlerContext } from '@connectrpc/connect';
import { PROTOCOL, admit } from './admission.js';
import { forgetOrder, isOrphan, orderFor, ordersFor, orphanOrder } from './orders.js';
import { Outbox } from './outbox.js';
import type { ApiServerDeps } from './ports.js';
import { ReplicaReports, missingReports } from './replica-reports.js';

/** An order that was not acknowledged is sent again after this long. */
const RESEND_MS = 1_000;

/** One agent that is connected. */
interface Session {
  readonly nodeId: string;
  readonly outbox: Outbox<CoordinatorMessage>;
  /** Newest order per replica that the agent has acknowledged. */
  readonly acknowledged: Map<string, bigint>;
  /** When an order was last sent, on the monotonic clock. */
  readonly sentAt: Map<string, number>;
  /** What it runs and should not, as last reported. */
  readonly orphans: Map<string, ReplicaReport>;
  /** The inventory so far, by replica id; undefined once it is complete. */
  inventory: Map<string, ReplicaReport> | undefined;
  /** Its number among the sessions that are alive; undefined until the inventory is written. */
  number: number | undefined;
}

/** What sessions tell of tunnels. */
export interface TunnelNotices {
  refused(nodeId: string, refused: TunnelRefused): void;
  /** The session through which tunnels were asked for has ended. */
  gone(nodeId: string): void;
  /** Nothing was heard of the node for a whole lease: what is open to it is dead. */
  lost(nodeId: string): void;
}

/** What tunnels need of sessions. */
export interface TunnelRequests {
  announceTunnels(notices: TunnelNotices): void;
  requestTunnel(nodeId: string, request: OpenTunnel): boolean;
  withdrawTunnel(nodeId: string, tunnelId: string): void;
}

/** Speaks with agents: takes their reports, pushes orders at once and again until they are acknowledged. */
export class SessionHub implements TunnelRequests {
  private readonly sessions = new Map<string, Session>();
  private readonly reports: ReplicaReports;
  private readonly unsubscribes: (() => void)[];
  private timer: Timer | undefined;
  private tunnels: TunnelNotices = { refused: () => undefined, gone: () => undefined, lost: () => undefined };

  constructor(private readonly deps: ApiServerDeps) {
    this.reports = new ReplicaReports(deps);
    this.unsubscribes = [
      deps.state.subscribe((changes) => this.push(changes)),
      deps.nodes.subscribe((nodeId) => this.dropLost(nodeId)),
    ];
    this.arm();
  }

  /** Who is told about tunnels; set once by the hub of tunnels. */
  announceTunnels(notices: TunnelNotices): void {
    this.tunnels = notices;
  }

  async close(): Promise<void> {
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    this.timer?.cancel();
    for (const session of this.sessions.values()) session.outbox.close();
    await this.reports.close();
  }

  /** Asks the agent of a node to dial a tunnel. @returns False when it is not connected. */
  requestTunnel(nodeId: string, request: OpenTunnel): boolean {
    const session = this.sessions.get(nodeId);
    if (session === undefined) return false;
    session.outbox.push(
      `tunnel/${request.tunnelId}`,
      create(CoordinatorMessageSchema, { message: { case: 'openTunnel', value: request } }),
    );
    return true;
  }

  /** Nobody waits for the tunnel any more: a request that was not sent yet is not sent. */
  withdrawTunnel(nodeId: string, tunnelId: string): void {
    this.sessions.get(nodeId)?.outbox.drop(`tunnel/${tunnelId}`);
  }

  /**
   * The Session call. The node counts as alive once its whole inventory is written: before that, what the store says of its
   * replicas is what was true before the agent went away, and nothing may be stopped on the strength of that.
   */
  async *session(messages: AsyncIterable<AgentMessage>, context: HandlerContext): AsyncGenerator<CoordinatorMessage> {
    const { clock, nodes, log } = this.deps;
    const incoming = messages[Symbol.asyncIterator]();
    const first = await incoming.next();
    const hello = first.done === true ? undefined : first.value.message;
    if (hello?.case !== 'hello') throw new CloudlessError('invalid', 'message: the first message of a session must be hello');
    await admit(this.deps, hello.value);
    const session = this.open(hello.value.nodeId);
    nodes.report(session.nodeId, hello.value.conditions);
    const connection = this.deps.connectionOf(context);
    const unsubscribes = [connection?.onPing(() => this.heard(session)), connection?.onClose(() => this.leave(session))];
    log.info('agent connected', { nodeId: session.nodeId });
    void this.read(session, incoming);
    try {
      yield create(CoordinatorMessageSchema, { message: { case: 'welcome', value: this.welcome() } });
      yield* session.outbox.drain(clock, context.signal);
    } finally {
      for (const unsubscribe of unsubscribes) unsubscribe?.();
      this.leave(session);
      log.info('agent disconnected', { nodeId: session.nodeId });
    }
  }

  /** The Heartbeat call: one turn of a session. */
  async heartbeat(request: HeartbeatRequest): Promise<HeartbeatResponse> {
    const { nodes } = this.deps;
    const { hello, inventory } = request;
    if (hello === undefined) throw new CloudlessError('invalid', 'hello: is required');
    await admit(this.deps, hello);
    const { nodeId } = hello;
    const reports = inventory?.replicas ?? [];
    for (const report of reports) this.reports.take(nodeId, report);
    if (inventory?.last === true) this.settleMissing(nodeId, new Set(reports.map(({ replicaId }) => replicaId)));
    if (nodes.status(nodeId).alive) nodes.heard(nodeId);
    else {
      await this.reports.written(nodeId);
      nodes.connected(nodeId);
    }
    nodes.report(nodeId, request.usage?.conditions ?? hello.conditions, request.usage?.usage);
    const acknowledged = new Map(reports.map((report) => [report.replicaId, report.orderRevision]));
    const view = this.deps.state.view();
    const orphans = reports.filter((report) => isOrphan(view, nodeId, report));
    const orders = [
      ...ordersFor(this.deps, nodeId, acknowledged),
      ...orphans.flatMap((report) => orphanOrder(this.deps, report) ?? []),
    ];
    return create(HeartbeatResponseSchema, { welcome: this.welcome(), orders });
  }

  private welcome(): Welcome {
    const { state, timings } = this.deps;
    return create(WelcomeSchema, {
      clusterId: state.clusterId,
      epoch: state.epoch,
      protocol: PROTOCOL,
      lease: durationFromMs(timings.leaseMs),
      pingInterval: durationFromMs(timings.pingMs),
      usageInterval: durationFromMs(timings.usageMs),
    });
  }

  /** A new session takes the place of an older one of the same node. */
  private open(nodeId: string): Session {
    const older = this.sessions.get(nodeId);
    if (older !== undefined) this.leave(older);
    const session: Session = {
      nodeId,
      outbox: new Outbox(),
      acknowledged: new Map(),
      sentAt: new Map(),
      orphans: new Map(),
      inventory: new Map(),
      number: undefined,
    };
    this.sessions.set(nodeId, session);
    return session;
  }

  /** Ends a session; doing so again changes nothing. */
  private leave(session: Session): void {
    const { nodeId } = session;
    session.outbox.close();
    if (session.number !== undefined) this.deps.nodes.disconnected(nodeId, session.number);
    if (!this.isCurrent(session)) return;
    this.sessions.delete(nodeId);
    this.tunnels.gone(nodeId);
  }

  /** A session that outlived its lease is over: its agent has to come back with its inventory. */
  private dropLost(nodeId: string): void {
    if (this.deps.nodes.status(nodeId).phase !== NodePhase.LOST) return;
    this.tunnels.lost(nodeId);
    const session = this.sessions.get(nodeId);
    if (session?.number !== undefined) this.leave(session);
  }

  private isCurrent(session: Session): boolean {
    return this.sessions.get(session.nodeId) === session;
  }

  private heard(session: Session): void {
    if (this.isCurrent(session)) this.deps.nodes.heard(session.nodeId);
  }

  private async read(session: Session, incoming: AsyncIterator<AgentMessage>): Promise<void> {
    try {
      for (let item = await incoming.next(); item.done !== true; item = await incoming.next()) {
        // What an older session still delivers is older than what the newer one has said.
        if (!this.isCurrent(session)) break;
        this.heard(session);
        await this.take(session, item.value);
      }
    } catch (reason) {
      this.deps.log.debug('session ended', { nodeId: session.nodeId, ...errorFields(reason) });
    }
    this.leave(session);
    incoming.return?.().catch(() => undefined);
  }

  private async take(session: Session, { message }: AgentMessage): Promise<void> {
    const { nodeId } = session;
    switch (message.case) {
      case 'inventory':
        for (const report of message.value.replicas) {
          session.inventory?.set(report.replicaId, report);
          this.takeReport(session, report);
        }
        if (message.value.last) await this.completeInventory(session);
        return;
      case 'report':
        this.takeReport(session, message.value);
        return;
      case 'usage':
        this.deps.nodes.report(nodeId, message.value.conditions, message.value.usage);
        return;
      case 'refused':
        this.deps.log.error('agent refused an order', {
          nodeId,
          replicaId: message.value.replicaId,
          reason: message.value.reason,
        });
        return;
      case 'tunnelRefused':
        this.tunnels.refused(nodeId, message.value);
        return;
      case 'goodbye':
        this.deps.log.info('agent says goodbye', { nodeId, reason: message.value.reason });
        return;
      case 'hello':
      case undefined:
        return;
    }
  }

  private async completeInventory(session: Session): Promise<void> {
    const { nodeId, inventory } = session;
    if (inventory === undefined) return;
    session.inventory = undefined;
    this.settleMissing(nodeId, new Set(inventory.keys()));
    for (const order of ordersFor(this.deps, nodeId, session.acknowledged)) this.send(session, order);
    await this.reports.written(nodeId);
    if (!this.isCurrent(session)) return;
    // A record may have gone while the inventory came in.
    for (const report of inventory.values()) this.minding(session, report);
    session.number = this.deps.nodes.connected(nodeId);
  }

  private takeReport(session: Session, report: ReplicaReport): void {
    const known = session.acknowledged.get(report.replicaId) ?? -1n;
    if (report.orderRevision > known) session.acknowledged.set(report.replicaId, report.orderRevision);
    this.reports.take(session.nodeId, report);
    this.minding(session, report);
  }

  /** Looks after a replica that should not be there, until it is gone. */
  private minding(session: Session, report: ReplicaReport): void {
    const { replicaId } = report;
    session.orphans.delete(replicaId);
    if (!isOrphan(this.deps.state.view(), session.nodeId, report)) return;
    const order = orphanOrder(this.deps, report);
    if (order?.order.case !== 'forget') session.orphans.set(replicaId, report);
    if (order !== undefined && (order.order.case === 'forget' || this.isDue(session, replicaId))) this.send(session, order);
  }

  /** What the store says of replicas that the agent, by its whole inventory, does not have. */
  private settleMissing(nodeId: string, known: ReadonlySet<string>): void {
    for (const report of missingReports(this.deps.state.view(), nodeId, known)) this.reports.take(nodeId, report);
  }

  /** Pushes what a commit changed to the agents it concerns. */
  private push(changes: readonly RecordChange[]): void {
    for (const { kind, before, after } of changes) {
      if (kind !== 'replica') continue;
      const [was, is] = [before as ReplicaRecord | undefined, after as ReplicaRecord | undefined];
      const session = this.sessions.get((is ?? was)?.nodeId ?? '');
      if (session === undefined || session.inventory !== undefined) continue;
      if (is === undefined) {
        if (was !== undefined) this.forget(session, was);
      } else if ((session.acknowledged.get(is.id) ?? -1n) < is.orderRevision && was?.orderRevision !== is.orderRevision) {
        const order = orderFor(this.deps, is);
        if (order !== undefined) this.send(session, order);
      }
    }
  }

  private forget(session: Session, { id, uid }: ReplicaRecord): void {
    session.acknowledged.delete(id);
    session.sentAt.delete(id);
    this.send(session, forgetOrder(this.deps, id, uid));
  }

  private send(session: Session, order: Order): void {
    if (order.order.case === 'forget') session.sentAt.delete(order.replicaId);
    else session.sentAt.set(order.replicaId, this.deps.clock.now());
    session.outbox.push(
      `order/${order.replicaId}`,
      create(CoordinatorMessageSchema, { message: { case: 'order', value: order } }),
    );
  }

  private arm(): void {
    this.timer = this.deps.clock.setTimer(RESEND_MS, () => {
      for (const session of this.sessions.values()) this.resend(session);
      this.arm();
    });
  }

  private resend(session: Session): void {
    if (session.inventory !== undefined) return;
    for (const order of ordersFor(this.deps, session.nodeId, session.acknowledged)) {
      if (this.isDue(session, order.replicaId)) this.send(session, order);
    }
    for (const report of [...session.orphans.values()]) this.minding(session, report);
  }

  private isDue(session: Session, replicaId: string): boolean {
    return this.deps.clock.now() - (session.sentAt.get(replicaId) ?? Number.NEGATIVE_INFINITY) >= RESEND_MS;
  }
}
