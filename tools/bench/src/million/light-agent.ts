import type * as http2 from 'node:http2';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { create, fromBinary, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import {
  AgentMessageSchema,
  CoordinatorMessageSchema,
  EnrollNodeRequestSchema,
  EnrollNodeResponseSchema,
  ReplicaStatus_Phase as Phase,
  type ReplicaReportSchema,
  type Order,
  type Welcome,
} from '@cloudless/api';
import { systemClock } from '@cloudless/app-kit';
import { FrameReader, callUnary, openCall, toFrames } from './grpc-stream.js';

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
type ReportInit = MessageInitShape<typeof ReplicaReportSchema>;
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
  private call: http2.ClientHttp2Stream | undefined;
  private isAdmitted = false;
  private runningReplicas = 0;
  /** Running replicas by version of the template; entries may be 0. */
  readonly runningByVersion = new Map<number, number>();
  private highestEpoch = 0n;
  private readonly startedAt = timestampFromMs(systemClock.wallTime());

  constructor(private readonly options: LightAgentOptions) {}

  /** Number of running replicas. */
  get running(): number {
    return this.runningReplicas;
  }

  async enroll(session: http2.ClientHttp2Session): Promise<void> {
    if (this.clusterId !== '') return;
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
  runSession(session: http2.ClientHttp2Session): Promise<void> {
    const call = openCall(session, 'Session');
    const reader = new FrameReader();
    this.call = call;
    call.on('data', (chunk: Buffer) => {
      this.options.counts.bytesReceived += chunk.length;
      this.handleMessages(reader.read(chunk));
    });
    call.on('error', () => undefined);
    call.on('end', () => call.close());
    const ended = new Promise<void>((resolve) => {
      call.on('close', () => {
        if (this.isAdmitted) this.options.counts.admitted -= 1;
        this.isAdmitted = false;
        if (this.call === call) this.call = undefined;
        resolve();
      });
    });
    this.send([this.createHello(), ...this.createInventory()]);
    return ended;
  }

  /** Sends a measurement, as real agents do at each usage interval. */
  sendUsage(): void {
    if (!this.isAdmitted) return;
    const usage = { cpuMillis: 100, memoryBytes: 1_000_000_000n };
    this.send([{ message: { case: 'usage', value: { usage } } }]);
  }

  private handleMessages(messages: readonly Uint8Array[]): void {
    const reports: MessageInit[] = [];
    for (const bytes of messages) {
      const { message } = fromBinary(CoordinatorMessageSchema, bytes);
      if (message.case === 'order') {
        const value = this.handleOrder(message.value);
        if (value !== undefined) reports.push({ message: { case: 'report', value } });
      } else if (message.case === 'welcome') {
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
  private handleOrder({
    replicaId,
    workloadUid,
    orderRevision,
    order,
  }: Order): ReportInit | undefined {
    const { counts } = this.options;
    const held = this.replicas.get(replicaId);
    if (held !== undefined && held.orderRevision >= orderRevision) counts.repeatedOrders += 1;
    if (order.case === 'forget') {
      counts.forgetOrders += 1;
      if (held?.phase === Phase.RUNNING) this.countRunning(held.version, -1);
      this.replicas.delete(replicaId);
      return { replicaId, workloadUid, orderRevision, phase: Phase.STOPPED, forgotten: true };
    }
    if (order.case === 'start') counts.startOrders += 1;
    else counts.stopOrders += 1;
    const phase = order.case === 'start' && !hasEnded(held) ? Phase.RUNNING : Phase.STOPPED;
    const version = held?.version ?? (order.case === 'start' ? order.value.version : 0);
    if (held?.phase === Phase.RUNNING && phase !== Phase.RUNNING) this.countRunning(version, -1);
    if (held?.phase !== Phase.RUNNING && phase === Phase.RUNNING) this.countRunning(version, 1);
    this.replicas.set(replicaId, { uid: workloadUid, version, orderRevision, phase });
    return this.createReport(replicaId);
  }

  private countRunning(version: number, change: number): void {
    this.runningReplicas += change;
    const { runningByVersion } = this;
    runningByVersion.set(version, (runningByVersion.get(version) ?? 0) + change);
  }

  private createReport(replicaId: string): ReportInit | undefined {
    const replica = this.replicas.get(replicaId);
    if (replica === undefined) return undefined;
    const { uid, orderRevision, phase } = replica;
    const ended = phase !== Phase.RUNNING;
    return {
      replicaId,
      workloadUid: uid,
      orderRevision,
      phase,
      ready: !ended,
      containerId: `process-${replicaId}`,
      container: { pid: ended ? 0 : 4_242, startedAt: this.startedAt, runtime: 'process' },
    };
  }

  private createHello(): MessageInit {
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
    return { message: { case: 'hello', value } };
  }

  private *createInventory(): Generator<MessageInit> {
    const reports = [...this.replicas.keys()].flatMap((id) => this.createReport(id) ?? []);
    for (let first = 0; ; first += REPORTS_PER_INVENTORY) {
      const last = first + REPORTS_PER_INVENTORY >= reports.length;
      const replicas = reports.slice(first, first + REPORTS_PER_INVENTORY);
      yield { message: { case: 'inventory', value: { replicas, last } } };
      if (last) return;
    }
  }

  private send(messages: readonly MessageInit[]): void {
    if (messages.length === 0 || this.call === undefined || this.call.destroyed) return;
    const frames = toFrames(
      messages.map((message) => toBinary(AgentMessageSchema, create(AgentMessageSchema, message))),
    );
    this.options.counts.bytesSent += frames.length;
    this.call.write(frames);
  }
}
