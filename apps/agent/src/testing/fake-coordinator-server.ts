import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import {
  CoordinatorMessageSchema,
  CoordinatorService,
  createErrorInterceptor,
  OpenTunnelSchema,
  WelcomeSchema,
  type AgentMessage,
  type Condition,
  type CoordinatorMessage,
  type OpenTunnel,
  type Order,
  type ReplicaReport,
  type TunnelFrame,
} from '@cloudless/api';
import { PushQueue } from '@cloudless/runtime';
import { connectionKey, startRpcServer, type RpcServer } from '@cloudless/rpc-node/server';
import { systemClock } from '@cloudless/app-kit';
import type { FakeIdentities } from './fake-identities.js';

/** Messages that a session buffers; more than any test sends. */
const QUEUE_LIMIT = 10_000;

/** Fake coordinator that serves agents on a free port, in plaintext unless it has identities. */
export class FakeCoordinatorServer {
  readonly clusterId = 'cluster-e2e';
  /** Calls of RenewLease. */
  readonly leaseRenewals: { readonly nodeId: string; readonly sessionId: string }[] = [];
  /** Addresses of agents in the Hellos of their sessions. */
  readonly agentAddresses: string[] = [];
  /** Newest report of each replica. */
  readonly reports = new Map<string, ReplicaReport>();
  /** Replicas of the newest complete inventory. */
  inventory: ReplicaReport[] = [];
  /** Node conditions of the newest usage report. */
  conditions: readonly Condition[] = [];
  /** Capabilities and node conditions of the newest Hello. */
  capabilities: readonly string[] = [];
  helloConditions: readonly Condition[] = [];
  /** Number of sessions that agents have opened, of pings and of Goodbyes. */
  sessions = 0;
  pings = 0;
  goodbyes = 0;
  private readonly openSessions = new Set<PushQueue<CoordinatorMessage>>();
  private readonly tunnels = new Map<string, TunnelFrame['frame'][]>();
  private readonly closedTunnels = new Set<string>();
  private waiting: (() => void)[] = [];
  private server: RpcServer | undefined;

  /** @param identities - Absent: plaintext. */
  constructor(private readonly identities?: FakeIdentities) {}

  get url(): string {
    return this.server?.url ?? '';
  }

  /** @param port - 0: a free port. */
  async listen(port = 0): Promise<void> {
    const { identities } = this;
    this.server = await startRpcServer({
      host: '127.0.0.1',
      port,
      clock: systemClock,
      interceptors: [createErrorInterceptor(() => undefined)],
      ...(identities === undefined ? {} : { tls: identities.tls, authorize: identities.authorize }),
      registerRoutes: (router) => {
        identities?.register(router);
        router.service(CoordinatorService, {
          enrollNode: async (request) => ({
            nodeId: request.nodeId,
            clusterId: this.clusterId,
            ...(await identities?.enroll(request)),
          }),
          renewLease: ({ nodeId, sessionId }) => {
            this.leaseRenewals.push({ nodeId, sessionId });
            return {};
          },
          session: (messages, context) => {
            const queue = new PushQueue<CoordinatorMessage>({
              limit: QUEUE_LIMIT,
              signal: context.signal,
            });
            const stop = context.values
              .get(connectionKey)
              ?.onPing(() => this.applyAndNotify(() => (this.pings += 1)));
            void this.read(messages, queue).finally(() => {
              stop?.();
              this.openSessions.delete(queue);
              queue.end();
            });
            return queue;
          },
          tunnel: (frames) => this.readTunnel(frames),
        });
      },
    });
  }

  async close(): Promise<void> {
    await this.server?.close();
  }

  /** Sends an order in every open session. */
  sendOrder(order: Order): void {
    this.send({ case: 'order', value: order });
  }

  /** Sends a message in every open session. */
  send(message: CoordinatorMessage['message']): void {
    for (const queue of this.openSessions)
      queue.push(create(CoordinatorMessageSchema, { message }));
  }

  /**
   * Opens a tunnel. Resolves with its frames except the first when the agent has ended the tunnel.
   */
  async openTunnel(
    tunnelId: string,
    target: OpenTunnel['target'],
  ): Promise<readonly TunnelFrame['frame'][]> {
    const value = create(OpenTunnelSchema, { tunnelId, target, dialWithin: durationFromMs(5_000) });
    for (const queue of this.openSessions)
      queue.push(create(CoordinatorMessageSchema, { message: { case: 'openTunnel', value } }));
    await this.waitUntil(() => this.closedTunnels.has(tunnelId));
    return this.tunnels.get(tunnelId) ?? [];
  }

  /** Resolves once `condition` returns true. Checks `condition` after every message of an agent. */
  async waitUntil(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.waiting.push(resolve));
  }

  private async read(
    messages: AsyncIterable<AgentMessage>,
    queue: PushQueue<CoordinatorMessage>,
  ): Promise<void> {
    try {
      for await (const { message } of messages)
        this.applyAndNotify(() => this.handleMessage(message, queue));
    } catch {
      // the agent was killed
    }
  }

  private handleMessage(
    message: AgentMessage['message'],
    queue: PushQueue<CoordinatorMessage>,
  ): void {
    if (message.case === 'hello') {
      this.inventory = [];
      this.agentAddresses.push(message.value.agentAddress);
      this.capabilities = message.value.capabilities;
      this.helloConditions = message.value.conditions;
      const times = {
        lease: durationFromMs(3_000),
        pingInterval: durationFromMs(200),
        usageInterval: durationFromMs(10_000),
      };
      const value = create(WelcomeSchema, {
        clusterId: this.clusterId,
        epoch: 1n,
        protocol: 1,
        ...times,
      });
      queue.push(create(CoordinatorMessageSchema, { message: { case: 'welcome', value } }));
    } else if (message.case === 'inventory') {
      this.inventory.push(...message.value.replicas);
      for (const report of message.value.replicas) this.reports.set(report.replicaId, report);
      if (message.value.last) {
        this.sessions += 1;
        this.openSessions.add(queue);
      }
    } else if (message.case === 'report') this.reports.set(message.value.replicaId, message.value);
    else if (message.case === 'usage') this.conditions = message.value.conditions;
    else if (message.case === 'goodbye') this.goodbyes += 1;
  }

  private async *readTunnel(frames: AsyncIterable<TunnelFrame>): AsyncGenerator<TunnelFrame> {
    let id = '';
    const results: TunnelFrame['frame'][] = [];
    for await (const { frame } of frames) {
      if (frame.case === 'tunnelId') this.tunnels.set((id = frame.value), results);
      else results.push(frame);
    }
    this.applyAndNotify(() => this.closedTunnels.add(id));
    yield* [];
  }

  private applyAndNotify(action: () => unknown): void {
    action();
    for (const wake of this.waiting.splice(0)) wake();
  }
}
