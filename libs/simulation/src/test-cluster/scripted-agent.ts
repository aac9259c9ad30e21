import { clone, create, type MessageInitShape } from '@bufbuild/protobuf';
import type { Transport } from '@connectrpc/connect';
import {
  AgentMessageSchema,
  Condition_Type as ConditionType,
  createCoordinatorClient,
  type EndpointSchema,
  GoodbyeSchema,
  HelloSchema,
  InventorySchema,
  ReplicaReportSchema,
  ReplicaStatus_Phase as Phase,
  UsageSchema,
  type AgentMessage,
  type Order,
  type ReplicaReport,
  type StartOrder,
} from '@cloudless/api';
import { createSeededRandom, randomHex, Wakeup, type Clock } from '@cloudless/base';

/**
 * The report by which a scripted agent answers a start order. `nothing`: accepts the order and
 * reports nothing.
 */
export type StartBehaviour = 'ready' | 'unready' | 'fails' | 'succeeds' | 'stops' | 'nothing';

/**
 * An agent that carries out orders at once unless a test sets another behaviour. Keeps its replicas
 * across sessions, as a real agent does.
 */
export class ScriptedAgent {
  /** Replicas by id. Ended replicas stay until they are forgotten. */
  readonly replicas = new Map<string, ReplicaReport>();
  /** All accepted start orders, newest last. */
  readonly started: Order[] = [];
  /** Behaviour of replicas that start from now on. */
  onStart: StartBehaviour | ((order: StartOrder) => StartBehaviour) = 'ready';
  /** False: accepts stop orders without carrying them out. */
  obeysStops = true;
  /** False: sends no PING, as with a cut network. */
  sendsPings = true;
  /** Number of following start and stop orders that are lost on the way. */
  dropsOrders = 0;
  /** Number of following forget orders that are lost on the way. */
  dropsForgets = 0;
  /** Highest epoch that any coordinator has sent. */
  highestEpoch = 0n;
  /** Number of accepted orders. */
  acceptedOrders = 0;
  private readonly random = createSeededRandom(7);
  private outgoing: AgentMessage[] = [];
  private readonly wakeup = new Wakeup();
  private session: AbortController | undefined;

  constructor(
    readonly nodeId: string,
    /**
     * Fields of the Hello message besides the default ones; a change takes effect with the next
     * session.
     */
    public hello: MessageInitShape<typeof HelloSchema>,
    private readonly clock: Clock,
  ) {}

  /** Enrols the node and opens a session; resolves after the Welcome of the coordinator. */
  async connect(transport: Transport): Promise<void> {
    const client = createCoordinatorClient(transport);
    const instanceId = `instance-of-${this.nodeId}-0123456789`;
    const { clusterId } = await client.enrollNode({ nodeId: this.nodeId, instanceId });
    const session = new AbortController();
    this.session = session;
    const outgoing: AgentMessage[] = [];
    this.outgoing = outgoing;
    const hello = create(HelloSchema, {
      protocolMin: 1,
      protocolMax: 1,
      instanceId,
      clusterId,
      bootId: 'boot',
      region: 'local',
      zone: 'zone-a',
      capacity: { cpuMillis: 4_000, memoryBytes: 8n * 1024n ** 3n },
      capabilities: ['runtime.process'],
      agentVersion: 'scripted',
      nodeId: this.nodeId,
      highestEpoch: this.highestEpoch,
    });
    const overrides = create(HelloSchema, this.hello);
    for (const key of Object.keys(this.hello) as (keyof typeof overrides)[])
      Object.assign(hello, { [key]: overrides[key] });
    this.send({ message: { case: 'hello', value: hello } });
    const inventory = create(InventorySchema, {
      replicas: [...this.replicas.values()],
      last: true,
    });
    this.send({ message: { case: 'inventory', value: inventory } });
    const responses = client
      .session(this.messages(outgoing, session.signal), { signal: session.signal })
      [Symbol.asyncIterator]();
    const welcome = await responses.next();
    if (welcome.done === true || welcome.value.message.case !== 'welcome')
      throw new Error('the coordinator sent no welcome');
    this.recordEpoch(welcome.value.message.value.epoch);
    void this.obey(responses, session);
  }

  /** Ends the session; replicas keep running. */
  disconnect(): void {
    this.session?.abort();
    this.session = undefined;
  }

  /**
   * Says Goodbye and leaves.
   * @param replicasContinue - Content of the Goodbye.
   */
  leave(replicasContinue = true): void {
    const value = create(GoodbyeSchema, { reason: 'the agent is stopping', replicasContinue });
    this.send({ message: { case: 'goodbye', value } });
  }

  get isConnected(): boolean {
    return this.session !== undefined;
  }

  /** Renews the lease, as an HTTP/2 PING does on a real connection. */
  ping(nodes: { renewLease(nodeId: string): void }): void {
    if (this.sendsPings && this.session !== undefined) nodes.renewLease(this.nodeId);
  }

  /** Changes a replica's report and sends it. */
  change(replicaId: string, changes: Partial<ReplicaReport>): void {
    const report = this.replicas.get(replicaId);
    if (report === undefined) throw new Error(`${this.nodeId} has no replica ${replicaId}`);
    this.report(Object.assign(clone(ReplicaReportSchema, report), changes));
  }

  /** Reports a replica without an acknowledgement of any order for it. */
  reportUnacknowledged(replicaId: string, changes: Pick<ReplicaReport, 'phase' | 'reason'>): void {
    this.report(create(ReplicaReportSchema, { replicaId, ...changes }));
  }

  /** Reports the condition DISK_FULL. */
  reportDiskFull(): void {
    const conditions = [{ type: ConditionType.DISK_FULL, status: true }];
    this.send({ message: { case: 'usage', value: create(UsageSchema, { conditions }) } });
  }

  private recordEpoch(epoch: bigint): void {
    if (epoch > this.highestEpoch) this.highestEpoch = epoch;
  }

  private report(report: ReplicaReport): void {
    this.replicas.set(report.replicaId, report);
    this.send({ message: { case: 'report', value: report } });
  }

  private async obey(
    responses: AsyncIterator<{ message: { case?: string | undefined; value?: unknown } }>,
    session: AbortController,
  ): Promise<void> {
    try {
      for (let item = await responses.next(); item.done !== true; item = await responses.next()) {
        if (item.value.message.case !== 'order') continue;
        const order = item.value.message.value as Order;
        if (this.dropsOrders > 0 && order.order.case !== 'forget') this.dropsOrders -= 1;
        else if (this.dropsForgets > 0 && order.order.case === 'forget') this.dropsForgets -= 1;
        else this.acceptOrder(order);
      }
    } catch {
      // The session was cut; replicas keep running.
    }
    if (this.session === session) this.session = undefined;
  }

  private acceptOrder(order: Order): void {
    this.acceptedOrders += 1;
    this.recordEpoch(order.epoch);
    const held = this.replicas.get(order.replicaId);
    const { replicaId, workloadUid, orderRevision } = order;
    if (order.order.case === 'forget') {
      this.replicas.delete(replicaId);
      const confirmation = create(ReplicaReportSchema, {
        replicaId,
        workloadUid,
        orderRevision,
        phase: Phase.STOPPED,
        forgotten: true,
      });
      this.send({ message: { case: 'report', value: confirmation } });
      return;
    }
    if (held !== undefined && held.orderRevision >= orderRevision) {
      this.report(held);
      return;
    }
    if (order.order.case === 'start') {
      // A replica never starts twice: a repeated start order changes nothing.
      if (held !== undefined)
        return this.report(Object.assign(clone(ReplicaReportSchema, held), { orderRevision }));
      this.started.push(order);
      const behaviour =
        typeof this.onStart === 'function' ? this.onStart(order.order.value) : this.onStart;
      if (behaviour === 'nothing') return;
      this.report(
        create(ReplicaReportSchema, {
          replicaId,
          workloadUid,
          orderRevision,
          containerId: randomHex(this.random, 32),
          endpoints: endpointsOf(order.order.value),
          ...REPORTS[behaviour],
        }),
      );
    } else if (order.order.case === 'stop') {
      const report =
        held === undefined
          ? create(ReplicaReportSchema, { replicaId, workloadUid })
          : clone(ReplicaReportSchema, held);
      const stopped =
        this.obeysStops || held === undefined
          ? { phase: Phase.STOPPED, ready: false }
          : { phase: Phase.STOPPING };
      this.report(Object.assign(report, { orderRevision }, stopped));
    }
  }

  private send(message: MessageInitShape<typeof AgentMessageSchema>): void {
    this.outgoing.push(create(AgentMessageSchema, message));
    this.wakeup.wake();
  }

  /** Yields the messages of one session. Every session has its own stream. */
  private async *messages(
    outgoing: AgentMessage[],
    signal: AbortSignal,
  ): AsyncGenerator<AgentMessage> {
    while (!signal.aborted) {
      const next = outgoing.shift();
      if (next !== undefined) yield next;
      else await this.wakeup.wait(signal);
    }
  }

  /** Virtual time, milliseconds. */
  get now(): number {
    return this.clock.now();
  }
}

/** The endpoints that the agent reports for the ports of a replica. */
function endpointsOf({ spec }: StartOrder): MessageInitShape<typeof EndpointSchema>[] {
  return (spec?.ports ?? []).map(({ name, containerPort }) => ({
    portName: name,
    ip: '192.0.2.1',
    port: containerPort,
  }));
}

/** Fields of the report for each behaviour. */
const REPORTS: Record<
  Exclude<StartBehaviour, 'nothing'>,
  MessageInitShape<typeof ReplicaReportSchema>
> = {
  ready: { phase: Phase.RUNNING, ready: true },
  unready: { phase: Phase.RUNNING, ready: false, reason: 'not listening yet' },
  fails: { phase: Phase.FAILED, ready: false, reason: 'exit code 1', lastExitCode: 1 },
  stops: { phase: Phase.STOPPED, ready: false },
  succeeds: { phase: Phase.SUCCEEDED, ready: false, lastExitCode: 0 },
};
