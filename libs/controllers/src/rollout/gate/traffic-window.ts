import type { EndpointTraffic, TrafficReport } from '@cloudless/api';
import type { Clock } from '@cloudless/base';

/** Figures of traffic are averages over this time, milliseconds. */
export const WINDOW_MS = 30_000;
/** Interval in which proxies report, milliseconds. */
const REPORT_MS = 5_000;
/** Time without a report, milliseconds, after which the figures of a proxy are missing. */
export const SILENT_MS = 3 * REPORT_MS;
const SLOTS = WINDOW_MS / REPORT_MS;
/** Processes of proxies whose last counts are kept: those of the largest cluster, twice. */
const MAX_PROCESSES = 20_000;

/** Traffic of some replicas within the window. */
export interface TrafficSum {
  /** The time that the counts are from, milliseconds: at least 5 s, at most the window. */
  readonly coveredMs: number;
  readonly connections: number;
  readonly failures: number;
  readonly requests: number;
  readonly errors: number;
  /** Number of requests by the bucket of their duration. */
  readonly durations: readonly number[];
}

/** The stream of a proxy. */
export interface TrafficSource {
  add(report: TrafficReport): void;
  /** A repeated call does nothing. */
  close(): void;
}

interface Counts {
  connections: number;
  failures: number;
  requests: number;
  errors: number;
  readonly durations: number[];
}

/** Counts of one replica in the slots of the window. */
interface Replica {
  /** Time from which the counts are complete. */
  readonly sinceMs: number;
  /** By the number of the slot since the start of the clock. */
  readonly slots: Map<number, Counts>;
}

/** The newest counts of a process of a proxy. */
interface Process {
  /** Wall-clock time of its first report to this coordinator. */
  readonly firstReportMs: number;
  lastReportMs: number;
  readonly totals: Map<string, Counts>;
}

interface Proxy {
  readonly nodeId: string;
  /** Time of the last report, or of the begin of the stream. */
  heardMs: number;
}

export interface TrafficWindowDeps {
  readonly clock: Clock;
  /**
   * Returns the creation of a replica, wall-clock milliseconds, whose traffic is kept; undefined for
   * every other replica, whose reports are dropped.
   */
  readonly findWatched: (replicaId: string) => number | undefined;
  /** Returns the nodes whose proxies must report: live nodes with a proxy. */
  readonly listProxyNodes: () => Iterable<string>;
}

/**
 * The traffic of replicas within a sliding window, from the reports of all network proxies. In
 * memory only: after a change of the leader the figures are missing until new reports have come.
 */
export class TrafficWindow {
  private readonly startedMs: number;
  private readonly proxies = new Set<Proxy>();
  private readonly processes = new Map<string, Process>();
  private readonly replicas = new Map<string, Replica>();
  /** Time from which a proxy without a stream is missing, by node. */
  private readonly absentSince = new Map<string, number>();
  private sweptMs = 0;

  constructor(private readonly deps: TrafficWindowDeps) {
    this.startedMs = deps.clock.now();
  }

  /** Begins the stream of a proxy. */
  open(nodeId: string): TrafficSource {
    const proxy: Proxy = { nodeId, heardMs: this.deps.clock.now() };
    this.proxies.add(proxy);
    return {
      add: (report) => {
        proxy.heardMs = this.deps.clock.now();
        this.add(nodeId, report);
      },
      close: () => void this.proxies.delete(proxy),
    };
  }

  /** Returns why figures of traffic are incomplete now; undefined when every proxy has reported. */
  explainMissing(): string | undefined {
    const nowMs = this.deps.clock.now();
    if (nowMs - this.startedMs < SILENT_MS)
      return 'this coordinator has just begun to collect the figures of proxies';
    const connected = new Map<string, number>();
    for (const { nodeId, heardMs } of this.proxies)
      connected.set(nodeId, Math.max(heardMs, connected.get(nodeId) ?? 0));
    const expected = new Set(this.deps.listProxyNodes());
    for (const nodeId of this.absentSince.keys())
      if (!expected.has(nodeId) || connected.has(nodeId)) this.absentSince.delete(nodeId);
    const silent = [...expected].filter((nodeId) => {
      const heardMs = connected.get(nodeId) ?? this.absentSince.get(nodeId);
      if (heardMs === undefined) this.absentSince.set(nodeId, nowMs);
      return nowMs - (heardMs ?? nowMs) > SILENT_MS;
    });
    const [first] = silent.sort();
    if (expected.size === 0) return 'no node has a network proxy';
    if (first === undefined) return undefined;
    const others = silent.length === 1 ? '' : ` and ${silent.length - 1} more`;
    return `the network proxy of node ${first}${others} does not report`;
  }

  /** Returns the traffic to some replicas together; undefined before the first report about them. */
  sum(replicaIds: Iterable<string>): TrafficSum {
    const nowMs = this.deps.clock.now();
    const first = toSlot(nowMs) - SLOTS + 1;
    const total = createCounts();
    let sinceMs = nowMs;
    for (const id of replicaIds) {
      const replica = this.replicas.get(id);
      if (replica === undefined) continue;
      sinceMs = Math.min(sinceMs, replica.sinceMs);
      for (const [slot, counts] of replica.slots) if (slot >= first) addCounts(total, counts);
    }
    const coveredMs = nowMs - Math.max(sinceMs, first * REPORT_MS);
    return { ...total, coveredMs: Math.max(REPORT_MS, coveredMs) };
  }

  private add(nodeId: string, { processId, endpoints }: TrafficReport): void {
    const { clock, findWatched } = this.deps;
    const nowMs = clock.now();
    this.sweep(nowMs);
    const key = `${nodeId}/${processId}`;
    const known = this.processes.get(key);
    const process = known ?? {
      firstReportMs: clock.wallTime(),
      lastReportMs: nowMs,
      totals: new Map<string, Counts>(),
    };
    for (const endpoint of endpoints) {
      const createdMs = findWatched(endpoint.replicaId);
      if (createdMs === undefined) continue;
      const counts = toCounts(endpoint);
      const before = process.totals.get(endpoint.replicaId);
      process.totals.set(endpoint.replicaId, counts);
      // What was counted before this coordinator heard of the process is from an unknown time.
      const isNew = known !== undefined && createdMs >= process.firstReportMs;
      if (before === undefined && !isNew) this.openReplica(endpoint.replicaId, nowMs);
      else
        this.addToSlot(
          this.openReplica(endpoint.replicaId, process.lastReportMs),
          toSlot(nowMs),
          subtract(counts, before ?? createCounts()),
        );
    }
    process.lastReportMs = nowMs;
    this.processes.delete(key);
    this.processes.set(key, process);
    if (this.processes.size > MAX_PROCESSES)
      this.processes.delete([...this.processes.keys()][0] ?? '');
  }

  private openReplica(id: string, sinceMs: number): Replica {
    let replica = this.replicas.get(id);
    if (replica === undefined) this.replicas.set(id, (replica = { sinceMs, slots: new Map() }));
    return replica;
  }

  private addToSlot({ slots }: Replica, slot: number, added: Counts): void {
    const counts = slots.get(slot);
    if (counts === undefined) slots.set(slot, added);
    else addCounts(counts, added);
    for (const old of slots.keys()) if (old <= slot - SLOTS) slots.delete(old);
  }

  /** Forgets what is no longer watched, once in each window. */
  private sweep(nowMs: number): void {
    if (nowMs - this.sweptMs < WINDOW_MS) return;
    this.sweptMs = nowMs;
    const isUnwatched = (id: string): boolean => this.deps.findWatched(id) === undefined;
    for (const id of this.replicas.keys()) if (isUnwatched(id)) this.replicas.delete(id);
    for (const { totals } of this.processes.values())
      for (const id of totals.keys()) if (isUnwatched(id)) totals.delete(id);
  }
}

function toSlot(ms: number): number {
  return Math.floor(ms / REPORT_MS);
}

function createCounts(): Counts {
  return { connections: 0, failures: 0, requests: 0, errors: 0, durations: [] };
}

function toCounts(traffic: EndpointTraffic): Counts {
  return {
    connections: Number(traffic.connections),
    failures: Number(traffic.connectFailures),
    requests: Number(traffic.requests),
    errors: Number(traffic.errors),
    durations: traffic.durations.map(Number),
  };
}

function addCounts(to: Counts, from: Counts): void {
  to.connections += from.connections;
  to.failures += from.failures;
  to.requests += from.requests;
  to.errors += from.errors;
  for (const [index, count] of from.durations.entries()) {
    while (to.durations.length <= index) to.durations.push(0);
    to.durations[index] = (to.durations[index] ?? 0) + count;
  }
}

/** Returns what was added; counts that went back began anew. */
function subtract(after: Counts, before: Counts): Counts {
  const difference = (now: number, earlier: number): number =>
    Math.max(0, now >= earlier ? now - earlier : now);
  return {
    connections: difference(after.connections, before.connections),
    failures: difference(after.failures, before.failures),
    requests: difference(after.requests, before.requests),
    errors: difference(after.errors, before.errors),
    durations: after.durations.map((count, index) =>
      difference(count, before.durations[index] ?? 0),
    ),
  };
}
