import { create } from '@bufbuild/protobuf';
import { durationFromMs, durationMs } from '@bufbuild/protobuf/wkt';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorMessageSchema,
  HeartbeatResponseSchema,
  NodeStatus_Phase as NodePhase,
  RenewLeaseResponseSchema,
  WelcomeSchema,
  directSenderKey,
  forEachItem,
  isBinaryCall,
  type AgentMessage,
  type CoordinatorMessage,
  type HeartbeatRequest,
  type HeartbeatResponse,
  type Goodbye,
  type Hello,
  type OpenTunnel,
  type RenewLeaseRequest,
  type RenewLeaseResponse,
  type ReplicaReport,
  type Welcome,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { CloudlessError, errorFields } from '@cloudless/base';
import type { RecordChange } from '@cloudless/cluster-state';
import type { FilesChangedSender } from '../files/file-changes.js';
import { CallAccess } from '../access/call-access.js';
import { RenewalRequests } from '../identity/renewal-requests.js';
import type { ApiServerDeps } from '../ports.js';
import { AgentSession, type AgentSessionDeps, type AgentSessionInit } from './agent-session.js';
import { admitNode, createClosingError, negotiateProtocol } from './node-admission.js';
import type { ForeignAgents } from './foreign-agents.js';
import { announcesCoordinator } from './known-coordinators.js';
import { listOrdersAfter, maySendOrders } from './orders.js';
import { OrderMetrics } from './order-metrics.js';
import { OrderResends } from './order-resends.js';
import { returnNode } from './node-return.js';
import { CurrentReconnectTimes } from './reconnect-times.js';
import { NO_TUNNELS, type TunnelListener, type TunnelRequester } from './tunnel-requester.js';
import { ReplicaReportQueue } from './replica-report-queue.js';
import { RollbackDetector } from './rollback-detector.js';
import { exposeSessionCount } from './session-count.js';
import { RunningOrphans } from './running-orphans.js';

/**
 * Runs the sessions of agents: receives their reports, sends orders as soon as they are committed,
 * and repeats orders until the agents acknowledge them.
 */
export class SessionHub implements TunnelRequester, FilesChangedSender {
  /** The newest session of each connected node, by node id. */
  private readonly sessions = new Map<string, AgentSession>();
  private readonly sessionDeps: AgentSessionDeps;
  private readonly resends: OrderResends;
  private readonly reportQueue: ReplicaReportQueue;
  private readonly rollbackDetector: RollbackDetector;
  private readonly orderMetrics: OrderMetrics;
  private readonly access: CallAccess;
  private readonly renewals: RenewalRequests;
  private readonly runningOrphans: RunningOrphans;
  private readonly unsubscribes: (() => void)[];
  private isClosed = false;
  private readonly reconnectTimes: CurrentReconnectTimes;
  private tunnelListener: TunnelListener = NO_TUNNELS;

  constructor(private readonly deps: ApiServerDeps & { readonly foreignAgents: ForeignAgents }) {
    this.access = new CallAccess(deps);
    this.renewals = new RenewalRequests(deps);
    this.reportQueue = new ReplicaReportQueue(deps);
    this.rollbackDetector = new RollbackDetector(deps);
    this.orderMetrics = new OrderMetrics(deps);
    this.runningOrphans = new RunningOrphans(deps);
    const { nodeCount } = deps.state.view();
    this.reconnectTimes = new CurrentReconnectTimes(nodeCount, deps.timings.leaseMs);
    this.unsubscribes = [
      exposeSessionCount(deps.meter, this.sessions),
      deps.state.subscribe((changes) => this.sendChangedOrders(changes)),
      deps.nodes.subscribe((nodeId) => this.endLostSession(nodeId)),
      deps.network.onGone((replicaIds) => this.sendEndpointsGone(replicaIds)),
      () => this.runningOrphans.close(),
    ];
    this.resends = new OrderResends(deps.clock, this.sessions, () =>
      this.renewals.send(this.sessions.values()),
    );
    const runningTimeMs = (): number => this.resends.runningTimeMs();
    this.sessionDeps = { ...deps, runningOrphans: this.runningOrphans, runningTimeMs };
    this.resends.start();
  }

  setTunnelListener(listener: TunnelListener): void {
    this.tunnelListener = listener;
  }

  /** Ends all sessions, opens none any more, and waits for commits of reports in progress. */
  async close(): Promise<void> {
    this.isClosed = true;
    for (const unsubscribe of this.unsubscribes) unsubscribe();
    this.resends.close();
    for (const session of this.sessions.values()) session.outbox.close();
    await this.reportQueue.close();
  }

  /** Returns the protocol version of a node's session; undefined when the node is not connected. */
  getProtocol(nodeId: string): number | undefined {
    return this.sessions.get(nodeId)?.protocol;
  }

  requestTunnel(nodeId: string, request: OpenTunnel): boolean {
    const session = this.sessions.get(nodeId);
    session?.requestTunnel(request);
    return session !== undefined;
  }

  withdrawTunnel(nodeId: string, tunnelId: string): void {
    this.sessions.get(nodeId)?.withdrawTunnel(tunnelId);
  }

  /**
   * Handles the Session call. The node counts as alive, and receives orders, once the reports of
   * its whole inventory are written. Until then, the records describe the replicas as they were
   * before the agent disconnected, and no replica may be stopped because of them.
   */
  async *runSession(
    messages: AsyncIterable<AgentMessage>,
    context: HandlerContext,
  ): AsyncGenerator<CoordinatorMessage> {
    const { nodes, log } = this.deps;
    const incoming = messages[Symbol.asyncIterator]();
    const first = await incoming.next();
    const hello = first.done === true ? undefined : first.value.message;
    if (hello?.case !== 'hello')
      throw new CloudlessError(
        'invalid',
        'message: the first message of a session must be `hello`',
      );
    const caller = this.access.getCaller(context);
    this.access.requireNode(caller, hello.value.nodeId);
    await admitNode(this.deps, hello.value);
    if (this.isClosed) throw createClosingError();
    this.rollbackDetector.checkHello(hello.value);
    const directSender = context.values.get(directSenderKey);
    const session = this.openSession({ hello: hello.value, caller, directSender });
    nodes.updateStatus(session.nodeId, hello.value.conditions);
    const connection = this.deps.getConnection(context);
    const unsubscribes = [
      connection?.onPing(() => this.renewLease(session)),
      connection?.onClose(() => this.endSession(session)),
    ];
    log.info('agent connected', { nodeId: session.nodeId });
    session.announceCoordinators();
    void this.readMessages(session, incoming);
    const isBinary = isBinaryCall(context.requestHeader);
    try {
      yield create(CoordinatorMessageSchema, {
        message: { case: 'welcome', value: this.createWelcome(hello.value, session.id) },
      });
      for await (const message of session.outbox.drain(context.signal)) {
        const sent = session.toSentMessage(message, isBinary);
        if (sent !== undefined) yield sent;
      }
    } finally {
      for (const unsubscribe of unsubscribes) unsubscribe?.();
      this.endSession(session);
      log.info('agent disconnected', { nodeId: session.nodeId });
    }
  }

  /** Handles the Heartbeat call: one unary call that opens, uses and leaves a session. */
  async handleHeartbeat(
    request: HeartbeatRequest,
    context: HandlerContext,
  ): Promise<HeartbeatResponse> {
    const { nodes, state } = this.deps;
    const { hello, inventory } = request;
    if (hello === undefined) throw new CloudlessError('invalid', 'hello: is required');
    this.access.requireNode(this.access.getCaller(context), hello.nodeId);
    await admitNode(this.deps, hello);
    if (this.isClosed) throw createClosingError();
    const { nodeId } = hello;
    const reports = inventory?.replicas ?? [];
    this.rollbackDetector.checkHello(hello);
    for (const report of reports) {
      const record = this.findReplica(report.replicaId);
      this.rollbackDetector.checkReport(nodeId, hello.highestEpoch, report, record);
      this.reportQueue.enqueueFromInventory(nodeId, report);
    }
    if (inventory?.last === true)
      this.reportQueue.enqueueMissing(nodeId, new Set(reports.map(({ replicaId }) => replicaId)));
    const isConnected = (): boolean => nodes.status(nodeId).phase === NodePhase.READY;
    if (isConnected()) nodes.renewLease(nodeId);
    // No order may be sent before all reports are written: a replica that is missing in the
    // inventory has ended and must not be started again.
    await this.reportQueue.flushed(nodeId);
    await returnNode(this.deps, nodeId, () => {
      if (!isConnected()) nodes.startSession(nodeId);
    });
    nodes.updateStatus(nodeId, request.usage?.conditions ?? hello.conditions, request.usage);
    const orders = maySendOrders(state) ? listOrdersAfter(this.deps, nodeId, reports) : [];
    return create(HeartbeatResponseSchema, {
      welcome: this.createWelcome(hello),
      orders: orders.filter((order) => !this.runningOrphans.delays(order)),
    });
  }

  private createWelcome(hello: Hello, sessionId = ''): Welcome {
    const { state, timings } = this.deps;
    return create(WelcomeSchema, {
      clusterId: state.clusterId,
      epoch: state.epoch,
      protocol: negotiateProtocol(hello),
      lease: durationFromMs(timings.leaseMs),
      pingInterval: durationFromMs(timings.pingMs),
      usageInterval: durationFromMs(timings.usageMs),
      sessionId,
      ...this.reconnectTimes.times,
    });
  }

  /** Opens a session, which ends an older session of the same node. */
  private openSession(init: AgentSessionInit): AgentSession {
    const older = this.sessions.get(init.hello.nodeId);
    if (older !== undefined) this.endSession(older);
    const session = new AgentSession(this.sessionDeps, this.orderMetrics, init);
    this.sessions.set(session.nodeId, session);
    return session;
  }

  /**
   * Handles the RenewLease call, by which an agent whose main loop does not turn keeps its lease.
   * Only the newest session of a node that has been admitted may do so: neither an older session
   * nor an older process of the agent can extend the lease of another one.
   * @throws kind `precondition` for any other session, `denied` for another node.
   */
  handleRenewLease(
    { nodeId, sessionId, loopAge }: RenewLeaseRequest,
    context: HandlerContext,
  ): RenewLeaseResponse {
    this.access.requireNode(this.access.getCaller(context), nodeId);
    const session = this.sessions.get(nodeId);
    if (session?.id !== sessionId || session.number === undefined) {
      throw new CloudlessError(
        'precondition',
        `session_id: is not the current session of node "${nodeId}"; open a new session`,
      );
    }
    this.deps.nodes.renewLease(nodeId, loopAge === undefined ? 0 : durationMs(loopAge));
    return create(RenewLeaseResponseSchema);
  }

  /**
   * Ends the session of an agent that leaves in good order. Its replicas keep their places for the
   * leave grace, unless they end with the agent.
   */
  private handleGoodbye(session: AgentSession, { reason, replicasContinue }: Goodbye): void {
    const { nodeId, number } = session;
    this.deps.log.info('agent says goodbye', { nodeId, reason, replicasContinue });
    if (number !== undefined && replicasContinue && !session.hasEnded)
      this.deps.nodes.leaveSession(nodeId, number, reason);
    this.endSession(session);
  }

  /** Ends a session. A repeated call does nothing. */
  private endSession(session: AgentSession): void {
    const { nodeId } = session;
    session.outbox.close();
    if (session.number !== undefined) this.deps.nodes.endSession(nodeId, session.number);
    if (session.hasEnded) return;
    session.hasEnded = true;
    this.sessions.delete(nodeId);
    this.resends.remove(session);
    this.tunnelListener.onSessionEnded(nodeId);
  }

  /**
   * Ends the session of a node whose lease has ended, so that the agent connects again and sends
   * its inventory. A session that waits for its inventory goes on.
   */
  private endLostSession(nodeId: string): void {
    if (this.deps.nodes.status(nodeId).phase !== NodePhase.LOST) return;
    this.tunnelListener.onNodeLost(nodeId);
    const session = this.sessions.get(nodeId);
    if (session?.number !== undefined) this.endSession(session);
  }

  private renewLease(session: AgentSession): void {
    if (!session.hasEnded) this.deps.nodes.renewLease(session.nodeId);
  }

  private async readMessages(
    session: AgentSession,
    incoming: AsyncIterator<AgentMessage>,
  ): Promise<void> {
    try {
      await forEachItem(incoming, (message) => {
        // Messages of a replaced session are dropped: those of the newer session are more recent.
        if (session.hasEnded) return false;
        this.renewLease(session);
        return this.handleMessage(session, message) ?? true;
      });
    } catch (reason) {
      this.deps.log.debug('session ended', { nodeId: session.nodeId, ...errorFields(reason) });
    }
    this.endSession(session);
    incoming.return?.().catch(() => undefined);
  }

  /** @returns A promise only when the handling of the message has to wait. */
  private handleMessage(session: AgentSession, received: AgentMessage): Promise<void> | undefined {
    const [{ nodeId }, { message }] = [session, received];
    switch (message.case) {
      case 'inventory':
        for (const report of message.value.replicas) {
          session.inventory?.set(report.replicaId, report);
          this.handleReport(session, report);
        }
        return message.value.last ? this.completeInventory(session) : undefined;
      case 'report':
        this.handleReport(session, message.value);
        return;
      case 'usage':
        this.deps.nodes.updateStatus(nodeId, message.value.conditions, message.value);
        return;
      case 'refused':
        this.deps.log.error('agent refused an order', {
          nodeId,
          replicaId: message.value.replicaId,
          reason: message.value.reason,
        });
        this.rollbackDetector.checkRefusal(nodeId, message.value);
        return;
      case 'tunnelRefused':
        this.tunnelListener.onRefused(nodeId, message.value);
        return;
      case 'goodbye':
        this.handleGoodbye(session, message.value);
        return;
      case 'hello':
      case undefined:
        return;
    }
  }

  /**
   * Writes the reports of a complete inventory, then ends a loss of the node and sends its orders.
   */
  private async completeInventory(session: AgentSession): Promise<void> {
    const { nodeId, inventory } = session;
    if (inventory === undefined) return;
    session.inventory = undefined;
    this.reportQueue.enqueueMissing(nodeId, new Set(inventory.keys()));
    // No order may be sent before all reports are written: a replica that is missing in the
    // inventory has ended and must not be started again.
    await this.reportQueue.flushed(nodeId);
    if (session.hasEnded) return;
    await returnNode(
      this.deps,
      nodeId,
      () => (session.number = this.deps.nodes.startSession(nodeId)),
      () => (session.hasEnded ? undefined : inventory.values()),
    );
    // The session has ended when its lease ended while the node record was written.
    if (session.hasEnded) return;
    session.admit(inventory);
    this.resends.note(session);
  }

  private handleReport(session: AgentSession, report: ReplicaReport): void {
    const { nodeId, inventory } = session;
    const record = this.findReplica(report.replicaId);
    // The inventory describes the time before this session. Later reports may contain orders that
    // this coordinator has just sent.
    const epoch = inventory === undefined ? 0n : session.highestEpoch;
    this.rollbackDetector.checkReport(nodeId, epoch, report, record);
    if (inventory === undefined) this.reportQueue.enqueue(nodeId, report);
    else this.reportQueue.enqueueFromInventory(nodeId, report);
    session.handleReport(report, record);
    this.resends.note(session);
  }

  private findReplica(replicaId: string): ReplicaRecord | undefined {
    return this.deps.state.view().replica(replicaId)?.value;
  }

  /** Sends the orders that follow from a commit to the affected agents. */
  private sendChangedOrders(changes: readonly RecordChange[]): void {
    if (changes.some(announcesCoordinator))
      for (const session of this.sessions.values()) session.announceCoordinators();
    this.reconnectTimes.noteChanges(changes, this.sessions.values());
    for (const { kind, before, after } of changes) {
      // The acceptance of a restored state changes the revisions of all orders.
      if (kind === 'meta') this.resends.trackAll();
      if (kind !== 'replica') continue;
      const [was, is] = [before as ReplicaRecord | undefined, after as ReplicaRecord | undefined];
      const nodeId = (is ?? was)?.nodeId ?? '';
      // Most changes concern no order: a replica waits for a node, or its agent has reported.
      if (nodeId === '' || was?.orderRevision === is?.orderRevision) continue;
      const session = this.sessions.get(nodeId);
      if (session === undefined) continue;
      session.handleReplicaChange(was, is);
      this.resends.note(session);
    }
  }

  private sendEndpointsGone(replicaIds: readonly string[]): void {
    for (const replicaId of replicaIds) {
      const nodeId = this.findReplica(replicaId)?.nodeId ?? '';
      this.sessions.get(nodeId)?.sendEndpointsGone(replicaId);
    }
  }

  sendFilesChanged(nodeId: string, replicaId: string): void {
    this.sessions.get(nodeId)?.sendFilesChanged(replicaId);
  }
}
