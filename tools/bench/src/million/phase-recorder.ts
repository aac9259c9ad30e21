import { systemClock } from '@cloudless/app-kit';
import { sleep } from '@cloudless/base';
import type { AgentCounts } from './agents-protocol.js';
import type { LightAgents } from './light-agents.js';
import {
  sumOf,
  type CoordinatorFigures,
  type MeasuredCoordinator,
  type Metrics,
} from './measured-coordinator.js';

/** State at one moment of a phase. */
export interface Sample {
  /** Seconds since the begin of the phase. */
  readonly seconds: number;
  /** Replicas that the agents have begun to run since the begin of the phase. */
  readonly started: number;
  /** CPU time of the coordinator since the begin of the phase, seconds. */
  readonly coordinatorCpuSeconds: number;
  readonly coordinatorMemoryMb: number;
}

/** Figures of one phase. */
export interface PhaseFigures {
  readonly seconds: number;
  readonly coordinatorCpuSeconds: number;
  readonly agentsCpuSeconds: number;
  /** Resident at the end of the phase. */
  readonly coordinatorMemoryMb: number;
  /** Of these, pages of mapped files: the store and the program. */
  readonly coordinatorFileMemoryMb: number;
  /** Largest resident memory since the start of the coordinator. */
  readonly coordinatorPeakMemoryMb: number;
  readonly replicas: number;
  readonly replicasPerSecond: number;
  /** Per replica of the phase. */
  readonly perReplica: Readonly<Record<string, number>>;
  /** Other counts of the phase. */
  readonly counts: Readonly<Record<string, number>>;
}

/** Time between two samples, milliseconds. */
const SAMPLE_MS = 500;
/**
 * A phase without any report ends after this time, milliseconds: `perReplica` for each of its
 * replicas, because the records of all lost replicas are written before the first replacement
 * starts.
 */
const STALLED_MS = { atLeast: 60_000, perReplica: 1 };

const round = (value: number, digits = 2): number => Number(value.toFixed(digits));

const toMegabytes = (bytes: number): number => Math.round(bytes / 1e6);

interface Moment {
  readonly atMs: number;
  readonly cpuSeconds: number;
  readonly metrics: Metrics;
  /** Longest time for which the main loop of the coordinator stood still since the last moment. */
  readonly longestPauseSeconds: number;
  readonly counts: AgentCounts;
}

/** Measures phases: what the coordinator and the agents use and count from begin to end. */
export class PhaseRecorder {
  /** Samples of all phases. */
  readonly series: Record<string, readonly Sample[]> = {};

  constructor(
    private readonly coordinator: MeasuredCoordinator,
    private readonly agents: LightAgents,
  ) {}

  /**
   * Runs a phase.
   * @param replicas - Number of replicas that the phase starts; the divisor of the figures.
   * @param begin - What makes the cluster work.
   * @param isDone - Looked at with each sample.
   * @param isConfirmed - Looked at from the time that `isDone` holds; the phase ends with it.
   */
  async run(
    name: string,
    replicas: number,
    begin: () => Promise<unknown>,
    isDone: (counts: AgentCounts) => boolean,
    isConfirmed: () => Promise<boolean>,
  ): Promise<PhaseFigures> {
    const stalledMs = STALLED_MS.atLeast + replicas * STALLED_MS.perReplica;
    const before = await this.readMoment();
    const samples: Sample[] = [];
    this.series[name] = samples;
    const begun = begin();
    let reports = -1;
    let progressAtMs = systemClock.now();
    for (;;) {
      const counts = await this.agents.count();
      samples.push(this.createSample(before, counts));
      if (isDone(counts)) break;
      if (counts.reports !== reports) progressAtMs = systemClock.now();
      reports = counts.reports;
      if (systemClock.now() - progressAtMs > stalledMs)
        throw new Error(
          `${name}: no report within ${stalledMs / 1_000} s; ${JSON.stringify(counts)}`,
        );
      await sleep(systemClock, SAMPLE_MS);
    }
    await begun;
    while (!(await isConfirmed())) await sleep(systemClock, SAMPLE_MS / 2);
    const after = await this.readMoment();
    return compare(before, after, replicas, this.coordinator.readFigures());
  }

  private createSample(before: Moment, counts: AgentCounts): Sample {
    const { cpuSeconds, memoryBytes } = this.coordinator.readFigures();
    return {
      seconds: round((systemClock.now() - before.atMs) / 1_000),
      started: counts.startOrders - before.counts.startOrders,
      coordinatorCpuSeconds: round(cpuSeconds - before.cpuSeconds),
      coordinatorMemoryMb: toMegabytes(memoryBytes),
    };
  }

  private async readMoment(): Promise<Moment> {
    const metrics = await this.coordinator.readMetrics();
    const counts = await this.agents.count();
    const { cpuSeconds } = this.coordinator.readFigures();
    const longestPauseSeconds = this.coordinator.takeLongestPause();
    return { atMs: systemClock.now(), cpuSeconds, metrics, longestPauseSeconds, counts };
  }
}

function compare(
  before: Moment,
  after: Moment,
  replicas: number,
  memory: CoordinatorFigures,
): PhaseFigures {
  const grown = (name: string, label?: string): number =>
    sumOf(after.metrics, name, label) - sumOf(before.metrics, name, label);
  const counted = (name: keyof Omit<AgentCounts, 'runningByVersion'>): number =>
    after.counts[name] - before.counts[name];
  const seconds = (after.atMs - before.atMs) / 1_000;
  const cpuSeconds = after.cpuSeconds - before.cpuSeconds;
  const per = (value: number): number => round(value / replicas, 3);
  return {
    seconds: round(seconds),
    coordinatorCpuSeconds: round(cpuSeconds),
    agentsCpuSeconds: round(counted('cpuSeconds')),
    coordinatorMemoryMb: toMegabytes(memory.memoryBytes),
    coordinatorFileMemoryMb: toMegabytes(memory.fileMemoryBytes),
    coordinatorPeakMemoryMb: toMegabytes(memory.peakMemoryBytes),
    replicas,
    replicasPerSecond: Math.round(replicas / seconds),
    perReplica: {
      coordinatorCpuUs: Math.round((cpuSeconds / replicas) * 1e6),
      agentsCpuUs: Math.round((counted('cpuSeconds') / replicas) * 1e6),
      wallUs: Math.round((seconds / replicas) * 1e6),
      commits: per(grown('cloudless_state_commits_total', 'result="ok"')),
      revisions: per(grown('cloudless_state_revision')),
      orders: per(grown('cloudless_orders_sent_total')),
      ordersAgain: per(grown('cloudless_orders_sent_total', 'again="true"')),
      reports: per(grown('cloudless_replica_reports_total')),
      placements: per(grown('cloudless_placements_total')),
      bytesToAgents: per(counted('bytesReceived')),
      bytesFromAgents: per(counted('bytesSent')),
      storeBytes: per(grown('cloudless_store_size_bytes')),
    },
    counts: {
      startOrders: counted('startOrders'),
      stopOrders: counted('stopOrders'),
      forgetOrders: counted('forgetOrders'),
      repeatedOrders: counted('repeatedOrders'),
      conflicts: grown('cloudless_state_commits_total', 'result="conflict"'),
      nodeLosses: grown('cloudless_node_losses_total'),
      mostReplicasOnOneAgent: after.counts.mostOnOneAgent,
      longestMainLoopPauseMs: Math.round(after.longestPauseSeconds * 1_000),
      storeMb: Math.round(sumOf(after.metrics, 'cloudless_store_size_bytes') / 1e6),
    },
  };
}
