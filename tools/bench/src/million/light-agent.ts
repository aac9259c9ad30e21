import type * as http2 from 'node:http2';
import { create, fromBinary, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import {
  AgentMessageSchema,
  EnrollNodeRequestSchema,
  EnrollNodeResponseSchema,
  MessageWriter,
  ReplicaStatus_Phase as Phase,
  type Welcome,
} from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';
import type { FrameConnection, FrameStream } from './frame-connection.js';
import { MessageReader, callUnary, pathOf, encodeMessages } from './grpc-stream.js';
import {
  decodeCoordinatorMessage,
  encodeInventoryMessage,
  encodeReportMessage,
  type LightOrder,
  type LightReport,
} from './session-codec.js';

/** Reports in one message of an inventory, far below its limit of 256 KiB. */
const REPORTS_PER_INVENTORY = 1_000;

interface LightReplica {
  readonly uid: string;
  readonly version: number;
  readonly orderRevision: bigint;
  readonly phase: Phase;
}

const hasEnded = (replica: LightReplica | undefined): boolean =>
  replica !== undefined && replica.phase !== Phase.RUNNING;

type MessageInit = MessageInitShape<typeof AgentMessageSchema>;
const encode = (message: MessageInit): Uint8Array =>
  toBinary(AgentMessageSchema, create(AgentMessageSchema, message));
/** Shared by all agents: each message is finished before the next one begins. */
const writer = new MessageWriter();
const GIB = 1024n ** 3n;

/** Counts that all agents of the process share. */
export interface SharedCounts {
  admitted: number;
  startOrders: number;
  stopOrders: number;
  forgetOrders: number;
  repeatedOrders: number;
  reports: number;
  bytesReceived: number;
  bytesSent: number;
}

export interface LightAgentOptions {
  readonly nodeId: string;
  readonly zone: string;
  readonly maxReplicas: number;
  readonly counts: SharedCounts;
  readonly onWelcome: (welcome: Welcome) => void;
}

/**
 * An agent without a runtime: speaks the session protocol, and answers each order at once with the
 * report that a real agent sends when the order is done. Several agents share a connection.
 */
export class LightAgent {
  /** All replicas, including those that have stopped and are not forgotten. */
  private readonly replicas = new Map<string, LightReplica>();
  private clusterId = '';
  private stream: FrameStream | undefined;
  private isAdmitted = false;
  private runningReplicas = 0;
  /** Running replicas by version of the template; entries may be 0. */
  readonly runningByVersion = new Map<number, number>();
  private highestEpoch = 0n;
  private readonly startedAtMs = systemClock.wallTime();

  constructor(private readonly options: LightAgentOptions) {}

  /** Number of running replicas. */
  get running(): number {
    return this.runningReplicas;
  }

  get isEnrolled(): boolean {
    return this.clusterId !== '';
  }

  async enroll(session: http2.ClientHttp2Session): Promise<void> {
    const { nodeId } = this.options;
    const request = create(EnrollNodeRequestSchema, { nodeId, instanceId: nodeId.padEnd(16, 'x') });
    const response = await callUnary(
      session,
      'EnrollNode',
      toBinary(EnrollNodeRequestSchema, request),
    );
    this.clusterId = fromBinary(EnrollNodeResponseSchema, response).clusterId;
  }

  /**
   * Opens a session over a connection: sends Hello and the inventory. Resolves when the session has
   * ended.
   */
  runSession(connection: FrameConnection): Promise<void> {
    const reader = new MessageReader();
    return new Promise((resolve) => {
      const stream = connection.open(pathOf('Session'), {
        onData: (data) => {
          this.options.counts.bytesReceived += data.length;
          this.handleMessages(reader.read(data));
        },
        onEnd: () => {
          if (this.isAdmitted) this.options.counts.admitted -= 1;
          this.isAdmitted = false;
          this.stream = undefined;
          resolve();
        },
      });
      this.stream = stream;
      this.send([this.encodeHello(), ...this.encodeInventory()]);
    });
  }

  /** Sends a measurement, as real agents do at each usage interval. */
  sendUsage(): void {
    if (!this.isAdmitted) return;
    const usage = { cpuMillis: 100, memoryBytes: 1_000_000_000n };
    this.send([encode({ message: { case: 'usage', value: { usage } } })]);
  }

  private handleMessages(messages: readonly Uint8Array[]): void {
    const reports: Uint8Array[] = [];
    for (const bytes of messages) {
      const { order, message } = decodeCoordinatorMessage(bytes);
      if (order !== undefined) reports.push(encodeReportMessage(writer, this.handleOrder(order)));
      else if (message.case === 'welcome') {
        this.highestEpoch = message.value.epoch;
        this.options.onWelcome(message.value);
      } else if (message.case === 'admitted' && !this.isAdmitted) {
        this.isAdmitted = true;
        this.options.counts.admitted += 1;
      }
    }
    this.options.counts.reports += reports.length;
    this.send(reports);
  }

  /** Carries out an order at once. Returns the report that acknowledges the order. */
  private handleOrder(order: LightOrder): LightReport {
    const { replicaId, workloadUid, orderRevision, kind } = order;
    const { counts } = this.options;
    const held = this.replicas.get(replicaId);
    if (held !== undefined && held.orderRevision >= orderRevision) counts.repeatedOrders += 1;
    if (kind === 'forget') {
      counts.forgetOrders += 1;
      if (held?.phase === Phase.RUNNING) this.countRunning(held.version, -1);
      this.replicas.delete(replicaId);
      const phase = Phase.STOPPED;
      return { replicaId, workloadUid, orderRevision, phase, ready: false, forgotten: true };
    }
    if (kind === 'start') counts.startOrders += 1;
    else counts.stopOrders += 1;
    const phase = kind === 'start' && !hasEnded(held) ? Phase.RUNNING : Phase.STOPPED;
    const version = held?.version ?? order.version;
    if (held?.phase === Phase.RUNNING && phase !== Phase.RUNNING) this.countRunning(version, -1);
    if (held?.phase !== Phase.RUNNING && phase === Phase.RUNNING) this.countRunning(version, 1);
    const replica = { uid: workloadUid, version, orderRevision, phase };
    this.replicas.set(replicaId, replica);
    return this.createReport(replicaId, replica);
  }

  private countRunning(version: number, change: number): void {
    this.runningReplicas += change;
    const { runningByVersion } = this;
    runningByVersion.set(version, (runningByVersion.get(version) ?? 0) + change);
  }

  private createReport(
    replicaId: string,
    { uid, orderRevision, phase }: LightReplica,
  ): LightReport {
    const isRunning = phase === Phase.RUNNING;
    return {
      replicaId,
      workloadUid: uid,
      orderRevision,
      phase,
      ready: isRunning,
      forgotten: false,
      container: { pid: isRunning ? 4_242 : 0, startedAtMs: this.startedAtMs },
    };
  }

  private encodeHello(): Uint8Array {
    const { nodeId, zone, maxReplicas } = this.options;
    const value = {
      protocolMin: 1,
      protocolMax: 2,
      nodeId,
      instanceId: nodeId.padEnd(16, 'x'),
      clusterId: this.clusterId,
      bootId: 'boot',
      highestEpoch: this.highestEpoch,
      region: 'local',
      zone,
      capacity: { cpuMillis: 64_000, memoryBytes: 256n * GIB, storageBytes: 1_000n * GIB },
      reserved: { cpuMillis: 0, memoryBytes: 0n },
      maxReplicas,
      capabilities: ['runtime.process'],
      agentVersion: 'simulated',
      architecture: 'x64',
      operatingSystem: 'linux',
    };
    return encode({ message: { case: 'hello', value } });
  }

  private *encodeInventory(): Generator<Uint8Array> {
    const reports = [...this.replicas].map(([id, replica]) => this.createReport(id, replica));
    for (let first = 0; ; first += REPORTS_PER_INVENTORY) {
      const last = first + REPORTS_PER_INVENTORY >= reports.length;
      const part = reports.slice(first, first + REPORTS_PER_INVENTORY);
      yield encodeInventoryMessage(writer, part, last);
      if (last) return;
    }
  }

  private send(messages: readonly Uint8Array[]): void {
    if (messages.length === 0 || this.stream === undefined) return;
    const frames = encodeMessages(messages);
    this.options.counts.bytesSent += frames.length;
    this.stream.write(frames);
  }
}
