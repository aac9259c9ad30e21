import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError } from '@cloudless/base';
import {
  AuthorizeAgentCallResponseSchema,
  CoordinatorMessageSchema,
  EnrollNodeResponseSchema,
  OpenTunnelSchema,
  toLeaderMetadata,
  TunnelFrameSchema,
  WelcomeSchema,
  type AgentMessage,
  type AuthorizeAgentCallRequest,
  type AuthorizeAgentCallResponse,
  type CoordinatorMessage,
  type EnrollNodeRequest,
  type EnrollNodeResponse,
  type GetReplicaFilesRequest,
  type GetReplicaFilesResponse,
  type Hello,
  type IssueWorkloadCertificateRequest,
  type NodeCertificate,
  type OpenTunnel,
  type Order,
  type RenewNodeCertificateRequest,
  type ReplicaReport,
  type TunnelFrame,
  type WorkloadCertificate,
} from '@cloudless/api';
import { PushQueue } from '@cloudless/runtime';
import type {
  CoordinatorConnection,
  CoordinatorTransport,
} from '../session/coordinator-transport.js';

/** Messages that a fake connection buffers; more than any test sends. */
const QUEUE_LIMIT = 100_000;

/** In-memory coordinator and network. Records what agents send. */
export class FakeCoordinator implements CoordinatorTransport {
  clusterId = 'cluster-1';
  epoch = 1n;
  protocol = 1;
  /** While false, connections are refused. */
  reachable = true;
  /** Resolves when a dial may open a connection, as after a TLS handshake. Default: at once. */
  beforeConnect: () => Promise<void> = () => Promise.resolve();
  /** Returns true for an address whose machine does not answer at all. Default: none. */
  isGone: (address: string) => boolean = () => false;
  /** While false, connections stay open but pings are not answered, as in a network partition. */
  answersPings = true;
  /** While false, sessions are accepted but get no Welcome. */
  sendsWelcome = true;
  /** While false, inventories are accepted but the node is not admitted. */
  admitsNodes = true;
  /** While set, sessions and enrolments fail with this error. */
  failure: CloudlessError | undefined;
  /** While set, sessions at other addresses are refused, and the error names this address. */
  leaderAddress: string | undefined;
  /** While set, only sessions fail with this error. */
  sessionFailure: CloudlessError | undefined;
  /**
   * Answers RenewNodeCertificate; a call that this function rejects fails. Default: as a
   * coordinator without identities.
   */
  renewNodeCertificate: (request: RenewNodeCertificateRequest) => Promise<NodeCertificate> = () =>
    Promise.reject(noIdentitiesError());
  /** Returns the certificate for the response to EnrollNode. Default: none. */
  enrollNode: (request: EnrollNodeRequest) => Partial<Pick<EnrollNodeResponse, 'certificate'>> =
    () => ({});
  /** Answers IssueWorkloadCertificate. Default: as a coordinator without identities. */
  issueWorkloadCertificate: (
    request: IssueWorkloadCertificateRequest,
  ) => Promise<WorkloadCertificate> = () => Promise.reject(noIdentitiesError());
  /** Answers GetReplicaFiles. Default: the node has no session. */
  getReplicaFiles: (
    request: GetReplicaFilesRequest,
  ) => Promise<readonly GetReplicaFilesResponse[]> = () =>
    Promise.reject(new CloudlessError('unavailable', 'no values'));
  /** Answers AuthorizeAgentCall. */
  authorizeAgentCall: (request: AuthorizeAgentCallRequest) => boolean = () => true;
  /** While false, only the first frame of a tunnel is read, as by a slow reader. */
  readsTunnels = true;

  /** Dialled addresses in order. */
  readonly dials: string[] = [];
  readonly enrolments: EnrollNodeRequest[] = [];
  readonly hellos: Hello[] = [];
  /** All messages of all sessions. */
  readonly received: AgentMessage['message'][] = [];
  /** Newest report of each replica, from inventories and single reports. */
  readonly reports = new Map<string, ReplicaReport>();
  /** Every report of each replica, in order. */
  readonly reportHistory: ReplicaReport[] = [];
  /** Frames of each tunnel. */
  readonly tunnels = new Map<string, TunnelFrame['frame'][]>();
  pings = 0;

  private readonly connections = new Set<FakeConnection>();

  async connect(
    address: string,
    signal: AbortSignal,
    onReached: () => void = () => undefined,
  ): Promise<CoordinatorConnection> {
    this.dials.push(address);
    const aborted = new Promise<never>((_resolve, reject) =>
      signal.addEventListener('abort', () => reject(signal.reason)),
    );
    if (this.isGone(address)) await aborted;
    if (this.reachable) onReached();
    await Promise.race([this.beforeConnect(), aborted]);
    if (!this.reachable || signal.aborted)
      throw new CloudlessError('unavailable', 'connection refused');
    const connection = new FakeConnection(this, address, () => this.connections.delete(connection));
    this.connections.add(connection);
    return connection;
  }

  /** Number of open sessions. */
  get openSessions(): number {
    return [...this.connections].filter(({ session }) => session !== undefined).length;
  }

  /** Sends a message in every open session. */
  send(message: CoordinatorMessage['message']): void {
    for (const { session } of this.connections)
      session?.push(create(CoordinatorMessageSchema, { message }));
  }

  /** Sends an order in every open session. */
  sendOrder(order: Order): void {
    this.send({ case: 'order', value: order });
  }

  /**
   * Requests a tunnel in every open session.
   * @param requestFields - Further fields of the request.
   */
  openTunnel(
    tunnelId: string,
    target: OpenTunnel['target'],
    requestFields: { readonly execInPieces?: boolean } = {},
  ): void {
    this.send({
      case: 'openTunnel',
      value: create(OpenTunnelSchema, { tunnelId, target, ...requestFields }),
    });
  }

  /** Sends a frame in every tunnel. */
  sendInTunnels(frame: TunnelFrame['frame']): void {
    for (const connection of this.connections)
      connection.sendInTunnels(create(TunnelFrameSchema, { frame }));
  }

  /** Ends the tunnel calls, as for a client that has disconnected. */
  endTunnels(): void {
    for (const connection of this.connections) connection.endTunnels();
  }

  /** Breaks every connection. */
  dropConnections(): void {
    for (const connection of [...this.connections]) connection.close();
  }

  /** @internal */
  receive({ message }: AgentMessage, connection: FakeConnection): void {
    this.received.push(message);
    if (message.case === 'hello') {
      this.hellos.push(message.value);
      if (this.sendsWelcome)
        connection.session?.push(
          create(CoordinatorMessageSchema, {
            message: { case: 'welcome', value: this.createWelcome() },
          }),
        );
    }
    if (message.case === 'inventory') {
      message.value.replicas.forEach((report) => this.record(report));
      if (message.value.last && this.admitsNodes)
        connection.session?.push(
          create(CoordinatorMessageSchema, { message: { case: 'admitted', value: {} } }),
        );
    }
    if (message.case === 'report') this.record(message.value);
  }

  private record(report: ReplicaReport): void {
    this.reports.set(report.replicaId, report);
    this.reportHistory.push(report);
  }

  /** False: behaves as a coordinator that does not know RenewLease. */
  sendsSessionIds = true;
  private welcomes = 0;

  private createWelcome() {
    return create(WelcomeSchema, {
      clusterId: this.clusterId,
      epoch: this.epoch,
      protocol: this.protocol,
      lease: durationFromMs(3_000),
      pingInterval: durationFromMs(900),
      usageInterval: durationFromMs(10_000),
      sessionId: this.sendsSessionIds ? `session-${(this.welcomes += 1)}` : '',
    });
  }
}

class FakeConnection implements CoordinatorConnection {
  session: PushQueue<CoordinatorMessage> | undefined;
  private readonly tunnels = new Set<PushQueue<TunnelFrame>>();
  private readonly waitingPings: ((reason: unknown) => void)[] = [];
  private closed = false;

  constructor(
    private readonly coordinator: FakeCoordinator,
    private readonly address: string,
    private readonly onClose: () => void,
  ) {}

  async enroll(request: EnrollNodeRequest): Promise<EnrollNodeResponse> {
    this.assertOpen();
    this.coordinator.enrolments.push(request);
    if (this.coordinator.failure !== undefined) throw this.coordinator.failure;
    return create(EnrollNodeResponseSchema, {
      nodeId: request.nodeId,
      clusterId: this.coordinator.clusterId,
      ...this.coordinator.enrollNode(request),
    });
  }

  async renewNodeCertificate(request: RenewNodeCertificateRequest): Promise<NodeCertificate> {
    this.assertOpen();
    return this.coordinator.renewNodeCertificate(request);
  }

  async issueWorkloadCertificate(
    request: IssueWorkloadCertificateRequest,
  ): Promise<WorkloadCertificate> {
    this.assertOpen();
    return this.coordinator.issueWorkloadCertificate(request);
  }

  async authorizeAgentCall(
    request: AuthorizeAgentCallRequest,
  ): Promise<AuthorizeAgentCallResponse> {
    this.assertOpen();
    const allowed = this.coordinator.authorizeAgentCall(request);
    return create(AuthorizeAgentCallResponseSchema, {
      allowed,
      principal: 'user/ada',
      reason: allowed ? '' : 'no role',
    });
  }

  openSession(outgoing: AsyncIterable<AgentMessage>): AsyncIterable<CoordinatorMessage> {
    const session = new PushQueue<CoordinatorMessage>({ limit: QUEUE_LIMIT });
    const { failure = this.coordinator.sessionFailure ?? this.findRedirect() } = this.coordinator;
    if (failure !== undefined) session.fail(failure);
    else if (this.closed) session.fail(createBrokenError());
    else {
      this.session = session;
      void this.read(outgoing, session);
    }
    return session;
  }

  async *getReplicaFiles(request: GetReplicaFilesRequest): AsyncGenerator<GetReplicaFilesResponse> {
    this.assertOpen();
    yield* await this.coordinator.getReplicaFiles(request);
  }

  openTunnel(outgoing: AsyncIterable<TunnelFrame>): AsyncIterable<TunnelFrame> {
    const tunnel = new PushQueue<TunnelFrame>({ limit: QUEUE_LIMIT });
    if (this.closed) tunnel.fail(createBrokenError());
    else {
      this.tunnels.add(tunnel);
      void this.readTunnel(outgoing, tunnel);
    }
    return tunnel;
  }

  ping(): Promise<void> {
    if (this.closed) return Promise.reject(createBrokenError());
    this.coordinator.pings += 1;
    if (this.coordinator.answersPings) return Promise.resolve();
    return new Promise((_resolve, reject) => this.waitingPings.push(reject));
  }

  sendInTunnels(frame: TunnelFrame): void {
    for (const tunnel of this.tunnels) tunnel.push(frame);
  }

  endTunnels(): void {
    for (const tunnel of this.tunnels) tunnel.end();
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.onClose();
    this.session?.fail(createBrokenError());
    this.session = undefined;
    for (const tunnel of this.tunnels) tunnel.fail(createBrokenError());
    for (const reject of this.waitingPings) reject(createBrokenError());
  }

  private async read(
    outgoing: AsyncIterable<AgentMessage>,
    session: PushQueue<CoordinatorMessage>,
  ): Promise<void> {
    for await (const message of outgoing) {
      if (this.closed) return;
      this.coordinator.receive(message, this);
    }
    session.end();
  }

  private async readTunnel(
    outgoing: AsyncIterable<TunnelFrame>,
    tunnel: PushQueue<TunnelFrame>,
  ): Promise<void> {
    const frames: TunnelFrame['frame'][] = [];
    for await (const { frame } of outgoing) {
      if (this.closed) return;
      if (frame.case === 'tunnelId') this.coordinator.tunnels.set(frame.value, frames);
      frames.push(frame);
      if (!this.coordinator.readsTunnels) return;
    }
    tunnel.end();
  }

  private findRedirect(): CloudlessError | undefined {
    const { leaderAddress: address, epoch } = this.coordinator;
    if (address === undefined || address === this.address) return undefined;
    return new CloudlessError('LEADERSHIP_LOST', 'this coordinator does not lead', {
      metadata: toLeaderMetadata({ address, epoch }),
    });
  }

  private assertOpen(): void {
    if (this.closed) throw createBrokenError();
  }
}

function createBrokenError(): CloudlessError {
  return new CloudlessError('unavailable', 'the connection broke');
}

function noIdentitiesError(): CloudlessError {
  return new CloudlessError('NO_IDENTITIES', 'this cluster has no identities');
}
