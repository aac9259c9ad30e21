import { clone, create, equals } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorMessageSchema,
  Event_Category as Category,
  Event_Severity as Severity,
  HeartbeatResponseSchema,
  HelloSchema,
  OrderSchema,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  StopOrderSchema,
  ForgetOrderSchema,
  StartOrderSchema,
  WelcomeSchema,
  type AgentMessage,
  type CoordinatorMessage,
  type HeartbeatRequest,
  type HeartbeatResponse,
  type Hello,
  type OpenTunnel,
  type Order,
  type ReplicaReport,
  type TunnelRefused,
  type Welcome,
} from '@cloudless/api';
import { NodeRecordSchema, type ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError, errorFields, errorKindOf, type Timer } from '@cloudless/base';
import { isLive, type RecordChange } from '@cloudless/cluster-state';
import type { HandlerContext } from '@connectrpc/connect';
import { Outbox } from './outbox.js';
import type { ApiServerDeps } from './ports.js';
import { ReplicaReports } from './replica-reports.js';

/** The protocol of this coordinator; an agent must speak it too. */
export const PROTOCOL = 1;
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
  /** Replica ids of the inventory so far; undefined once it is complete. */
  inventory: Set<string> | undefined;
}

/** What sessions tell of tunnels. */
export interface TunnelNotices {
  refused(nodeId: string, refused: TunnelRefused): void;
  gone(nodeId: string): void;
}

/** Speaks with agents: takes their reports, pushes orders at once and again until they are acknowledged. */
export class SessionHub {
  private readonly sessions = new Map<string, Session>();
  private readonly reports: ReplicaReports;
  private readonly unsubscribe: () => void;
  private timer: Timer | undefined;
  private tunnels: TunnelNotices = { refused: () => undefined, gone: () => undefined };

  constructor(private readonly deps: ApiServerDeps) {
    this.reports = new ReplicaReports(deps);
    this.unsubscribe = deps.state.subscribe((changes) => this.push(changes));
    this.arm();
  }

  /** Who is told about tunnels; set once by the hub of tunnels. */
  announceTunnels(notices: TunnelNotices): void {
    this.tunnels = notices;
  }

  async close(): Promise<void> {
    this.unsubscribe();
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

  /** The Session call. */
  async *session(messages: AsyncIterable<AgentMessage>, context: HandlerContext): AsyncGenerator<CoordinatorMessage> {
    const { clock, nodes, log } = this.deps;
    const incoming = messages[Symbol.asyncIterator]();
    const first = await incoming.next();
    const hello = first.done === true ? undefined : first.value.message;
    if (hello?.case !== 'hello') throw new CloudlessError('invalid', 'message: the first message of a session must be hello');
    await this.admit(hello.value);
    const { nodeId } = hello.value;
    this.sessions.get(nodeId)?.outbox.close();
    const session: Session = {
      nodeId,
      outbox: new Outbox(),
      acknowledged: new Map(),
      sentAt: new Map(),
      inventory: new Set(),
    };
    this.sessions.set(nodeId, session);
    const number = nodes.connected(nodeId);
    nodes.report(nodeId, hello.value.conditions);
    const connection = this.deps.connectionOf(context);
    const leave = [
      connection?.onPing(() => nodes.heard(nodeId)),
      connection?.onClose(() => {
        nodes.disconnected(nodeId, number);
        session.outbox.close();
      }),
    ];
    log.info('agent connected', { nodeId });
    void this.read(session, incoming);
    try {
      yield create(CoordinatorMessageSchema, { message: { case: 'welcome', value: this.welcome() } });
      yield* session.outbox.drain(clock, context.signal);
    } finally {
      for (const unsubscribe of leave) unsubscribe?.();
      session.outbox.close();
      nodes.disconnected(nodeId, number);
      if (this.sessions.get(nodeId) === session) {
        this.sessions.delete(nodeId);
        this.tunnels.gone(nodeId);
      }
      log.info('agent disconnected', { nodeId });
    }
  }

  /** The Heartbeat call: one turn of a session. */
  async heartbeat(request: HeartbeatRequest): Promise<HeartbeatResponse> {
    const { nodes } = this.deps;
    const { hello } = request;
    if (hello === undefined) throw new CloudlessError('invalid', 'hello: is required');
    await this.admit(hello);
    if (nodes.status(hello.nodeId).alive) nodes.heard(hello.nodeId);
    else nodes.connected(hello.nodeId);
    nodes.report(hello.nodeId, request.usage?.conditions ?? hello.conditions, request.usage?.usage);
    const acknowledged = new Map<string, bigint>();
    for (const report of request.inventory?.replicas ?? []) {
      acknowledged.set(report.replicaId, report.orderRevision);
      this.takeReport(hello.nodeId, report);
    }
    if (request.inventory?.last === true) this.settleMissing(hello.nodeId, new Set(acknowledged.keys()));
    const orders = [
      ...this.ordersFor(hello.nodeId, acknowledged),
      ...(request.inventory?.replicas ?? []).flatMap((report) => this.orphanOrder(report)),
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

  /** Checks that this agent belongs here, and keeps what it says of its machine. */
  private async admit(hello: Hello): Promise<void> {
    const { state } = this.deps;
    if (hello.protocolMin > PROTOCOL || hello.protocolMax < PROTOCOL) {
      throw new CloudlessError(
        'precondition',
        `agent speaks protocol ${hello.protocolMin} to ${hello.protocolMax}, this coordinator speaks ${PROTOCOL}; install matching versions`,
      );
    }
    if (hello.clusterId !== state.clusterId) {
      throw new CloudlessError(
        'precondition',
        `node "${hello.nodeId}" belongs to cluster ${hello.clusterId || '(none)'}, this is cluster ${state.clusterId}`,
      );
    }
    if (hello.highestEpoch > state.epoch) {
      this.deps.log.error('agent has seen a newer leadership than the store', {
        nodeId: hello.nodeId,
        epoch: String(hello.highestEpoch),
      });
      throw new CloudlessError(
        'precondition',
        `node "${hello.nodeId}" has taken orders of epoch ${hello.highestEpoch}, and this store is at ${state.epoch}: it went back in time`,
      );
    }
    for (;;) {
      const node = state.view().node(hello.nodeId);
      if (node === undefined) throw new CloudlessError('notFound', `node "${hello.nodeId}" is not enrolled`);
      if (node.value.instanceId !== hello.instanceId) {
        throw new CloudlessError('precondition', `node "${hello.nodeId}" is enrolled by another machine; choose another name`);
      }
      const kept = Object.assign(clone(HelloSchema, hello), { conditions: [], highestEpoch: 0n });
      if (node.value.hello !== undefined && equals(HelloSchema, node.value.hello, kept)) return;
      const record = Object.assign(clone(NodeRecordSchema, node.value), { hello: kept });
      const transaction = state.transaction().require('node', record.id, node).put('node', record.id, record);
      transaction.event({
        severity: Severity.INFO,
        category: Category.MEMBERSHIP,
        reason: node.value.hello === undefined ? 'NodeJoined' : 'NodeChanged',
        message: `node ${record.id} has ${kept.capacity?.cpuMillis ?? 0} m CPU, zone ${kept.zone || '(none)'}, capabilities ${kept.capabilities.join(', ')}`,
        nodeId: record.id,
      });
      try {
        await state.commit(transaction);
        return;
      } catch (reason) {
        if (errorKindOf(reason) !== 'conflict') throw reason;
      }
    }
  }

  private async read(session: Session, incoming: AsyncIterator<AgentMessage>): Promise<void> {
    try {
      for (let item = await incoming.next(); item.done !== true; item = await incoming.next()) {
        this.deps.nodes.heard(session.nodeId);
        this.take(session, item.value);
      }
    } catch (reason) {
      this.deps.log.debug('session ended', { nodeId: session.nodeId, ...errorFields(reason) });
    }
    session.outbox.close();
  }

  private take(session: Session, { message }: AgentMessage): void {
    const { nodeId } = session;
    switch (message.case) {
      case 'inventory':
        for (const report of message.value.replicas) {
          session.inventory?.add(report.replicaId);
          this.takeSessionReport(session, report);
        }
        if (message.value.last && session.inventory !== undefined) {
          this.settleMissing(nodeId, session.inventory);
          session.inventory = undefined;
          for (const order of this.ordersFor(nodeId, session.acknowledged)) this.send(session, order);
        }
        return;
      case 'report':
        this.takeSessionReport(session, message.value);
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

  private takeSessionReport(session: Session, report: ReplicaReport): void {
    const known = session.acknowledged.get(report.replicaId) ?? -1n;
    if (report.orderRevision > known) session.acknowledged.set(report.replicaId, report.orderRevision);
    this.takeReport(session.nodeId, report);
    for (const order of this.orphanOrder(report)) this.send(session, order);
  }

  private takeReport(nodeId: string, report: ReplicaReport): void {
    this.reports.take(nodeId, report);
  }

  /**
   * The order for a replica that no record speaks of. One that has ended is forgotten, one that runs is stopped; but one
   * whose order is newer than our store proves that the store went back in time: it is kept.
   */
  private orphanOrder(report: ReplicaReport): readonly Order[] {
    const { state, log } = this.deps;
    const view = state.view();
    if (view.replica(report.replicaId) !== undefined) return [];
    if (report.orderRevision > view.revision) {
      log.error('replica has a newer order than the store', {
        replicaId: report.replicaId,
        orderRevision: String(report.orderRevision),
      });
      return [];
    }
    const ended = report.phase > Phase.STOPPING;
    if (!ended) log.warn('orphan is stopped', { replicaId: report.replicaId, workloadId: report.workloadUid });
    return [
      create(OrderSchema, {
        epoch: state.epoch,
        orderRevision: view.revision,
        replicaId: report.replicaId,
        workloadUid: report.workloadUid,
        order: ended
          ? { case: 'forget', value: create(ForgetOrderSchema) }
          : { case: 'stop', value: create(StopOrderSchema, { reason: 'no record of this replica exists' }) },
      }),
    ];
  }

  /** What the store says of replicas that the agent, by its whole inventory, does not have. */
  private settleMissing(nodeId: string, known: ReadonlySet<string>): void {
    for (const { value } of this.deps.state.view().replicasOn(nodeId)) {
      if (known.has(value.id)) continue;
      const stopping = !value.desiredRunning;
      const forgotten = value.desiredRunning && isLive(value) && value.phase >= Phase.STARTING;
      if (!stopping && !forgotten) continue;
      const phase = stopping ? Phase.STOPPED : Phase.FAILED;
      const reason = stopping ? '' : `node ${nodeId} no longer knows the replica`;
      this.reports.take(
        nodeId,
        create(ReplicaReportSchema, {
          replicaId: value.id,
          workloadUid: value.uid,
          phase,
          reason,
          containerId: value.containerId,
        }),
      );
    }
  }

  /** Orders that the node's records ask for and the agent has not acknowledged. */
  private ordersFor(nodeId: string, acknowledged: ReadonlyMap<string, bigint>): readonly Order[] {
    return [...this.deps.state.view().replicasOn(nodeId)].flatMap(({ value }) => {
      const order = (acknowledged.get(value.id) ?? -1n) < value.orderRevision ? this.orderFor(value) : undefined;
      return order === undefined ? [] : [order];
    });
  }

  private orderFor(replica: ReplicaRecord): Order | undefined {
    const { state } = this.deps;
    const common = { epoch: state.epoch, orderRevision: replica.orderRevision, replicaId: replica.id, workloadUid: replica.uid };
    if (!replica.desiredRunning) {
      if (replica.phase === Phase.STOPPED) return undefined;
      return create(OrderSchema, {
        ...common,
        order: { case: 'stop', value: create(StopOrderSchema, { reason: replica.stopReason }) },
      });
    }
    if (!isLive(replica)) return undefined;
    const view = state.view();
    const workload = view.workload(replica.uid)?.value;
    const spec = view.version(replica.uid, replica.version)?.template;
    if (workload === undefined || spec === undefined) return undefined;
    const { namespace, name } = workload;
    const start = create(StartOrderSchema, { namespace, workload: name, version: replica.version, slot: replica.slot, spec });
    return create(OrderSchema, { ...common, order: { case: 'start', value: start } });
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
        const order = this.orderFor(is);
        if (order !== undefined) this.send(session, order);
      }
    }
  }

  private forget(session: Session, { id, uid }: ReplicaRecord): void {
    const { state } = this.deps;
    session.acknowledged.delete(id);
    session.sentAt.delete(id);
    this.send(
      session,
      create(OrderSchema, {
        epoch: state.epoch,
        orderRevision: state.view().revision,
        replicaId: id,
        workloadUid: uid,
        order: { case: 'forget', value: create(ForgetOrderSchema) },
      }),
    );
  }

  private send(session: Session, order: Order): void {
    if (order.order.case !== 'forget') session.sentAt.set(order.replicaId, this.deps.clock.now());
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
    const now = this.deps.clock.now();
    for (const order of this.ordersFor(session.nodeId, session.acknowledged)) {
      if (now - (session.sentAt.get(order.replicaId) ?? Number.NEGATIVE_INFINITY) >= RESEND_MS) this.send(session, order);
    }
  }
}
