// Logs of busy replicas through a real coordinator and agent: lines per second, CPU time, delay,
// and missing lines. One follower reads an existing log, one follows a replica that writes at full
// speed, 100 follow replicas that write evenly; `docker logs -f` does the same where a Docker
// daemon runs. A repeated line, or a missing line without a report, is a violation.
// --lines N (default 100 000: the number of lines of 100 bytes that a node stores), --flood N
// (default 1 000 000), --followers N (default 100).
import { parseArgs } from 'node:util';
import type { CoordinatorClient } from '@cloudless/api';
import { RealCluster } from '@cloudless/e2e';
import { systemClock } from '@cloudless/app-kit';
import { measureDocker } from './logs-docker.js';
import { LogFollower } from './log-follower.js';
import { LINE_BYTES, WRITER_COMMAND } from './log-writer.js';
import { readCpuSeconds } from './process-figures.js';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

const { values: flags } = parseArgs({
  options: { lines: { type: 'string' }, flood: { type: 'string' }, followers: { type: 'string' } },
});
const LINES = Number(flags.lines ?? 100_000);
const FLOOD_LINES = Number(flags.flood ?? 1_000_000);
const FOLLOWERS = Number(flags.followers ?? 100);
/** Number of replicas that write evenly. */
const WRITERS = 10;
/** Lines that each of them writes in a second. */
const PACE_PER_SECOND = 100;
/** Lines that each of them writes in all. */
const PACE_LINES = 500;
/** Followers of one connection; a connection may have 64 streams. */
const FOLLOWERS_PER_CONNECTION = 50;
/** Most bytes of lines in one message. */
const BATCH_BYTES = 64 * 1024;
/** Replicas stop at once, and are available as soon as they are ready. */
const QUICK = { preStopDelay: { seconds: 0n }, rollout: { minReadyDuration: { seconds: 0n } } };

/** A replica that writes lines on request. */
interface Writer {
  readonly containerId: string;
  requestLines(path: string): Promise<void>;
}

async function startWriters(
  cluster: RealCluster,
  name: string,
  replicas: number,
): Promise<readonly Writer[]> {
  const spec = {
    ...QUICK,
    command: WRITER_COMMAND,
    ports: [{ name: 'http', containerPort: 80 }],
    replicas,
  };
  await cluster.client.createWorkload({ name, spec });
  const { status } = await cluster.waitUntilSettled(name);
  return (status?.replicas ?? []).map(({ containerId, endpoints }) => ({
    containerId,
    requestLines: async (path) =>
      void (await fetch(`http://${endpoints[0]?.ip}:${endpoints[0]?.port}${path}`)),
  }));
}

/** CPU time and duration of a measurement. */
class Costs {
  private readonly before: readonly number[];
  private readonly startedAtMs = systemClock.now();

  constructor(private readonly pids: Readonly<Record<string, number>>) {
    this.before = Object.values(pids).map(readCpuSeconds);
  }

  /**
   * Returns the costs since the start of the measurement for a number of lines. The client is this
   * process with all its followers.
   */
  sinceStart(lines: number): Readonly<Record<string, unknown>> {
    const seconds = (systemClock.now() - this.startedAtMs) / 1_000;
    const micros = Object.entries(this.pids).map(([name, pid], index) => {
      const cpuSeconds = readCpuSeconds(pid) - (this.before[index] ?? 0);
      return [name, Math.round((cpuSeconds / lines) * 1e7) / 10] as const;
    });
    const serverMicros = micros
      .filter(([name]) => name !== 'client')
      .reduce((sum, [, each]) => sum + each, 0);
    return {
      lines,
      seconds: Math.round(seconds * 1_000) / 1_000,
      linesPerSecond: Math.round(lines / seconds),
      cpuMicrosPerLine: Object.fromEntries(micros),
      linesPerCoreSecond: Math.round(1e6 / serverMicros),
    };
  }
}

const sumViolations = (followers: readonly LogFollower[]): number =>
  followers.reduce((sum, { violations }) => sum + violations, 0);
const sumMissing = (followers: readonly LogFollower[]): number =>
  followers.reduce((sum, { missingLines }) => sum + missingLines, 0);

/** The measurements of one run, each with replicas of its own. */
class Measurements {
  constructor(
    private readonly cluster: RealCluster,
    private readonly pids: Readonly<Record<string, number>>,
    private readonly violations: Violations,
  ) {}

  /**
   * Measures reading an existing log from its beginning.
   * @param maxBatchBytes - 0: one line in each message.
   * @param name - Name of the workload and of the measurement.
   */
  async measureExistingLog(
    maxBatchBytes: number,
    name: string,
  ): Promise<Readonly<Record<string, unknown>>> {
    const [writer] = await startWriters(this.cluster, name, 1);
    if (writer === undefined) throw new Error('no replica runs');
    const warmUp = new LogFollower(this.cluster.client, writer.containerId, maxBatchBytes);
    await writer.requestLines(`/flood/${LINES - 1}`);
    await warmUp.waitForLine(LINES);
    await warmUp.stop();
    const costs = new Costs(this.pids);
    const follower = new LogFollower(this.cluster.client, writer.containerId, maxBatchBytes);
    await follower.waitForLine(LINES);
    const figures = { ...costs.sinceStart(follower.lines), missed: follower.missingLines };
    return this.report(name, [follower], figures);
  }

  /** Measures following a replica that writes at full speed. */
  async measureFullSpeed(): Promise<Readonly<Record<string, unknown>>> {
    const [writer] = await startWriters(this.cluster, 'flood', 1);
    if (writer === undefined) throw new Error('no replica runs');
    const follower = new LogFollower(this.cluster.client, writer.containerId, BATCH_BYTES);
    await follower.waitForLine(1);
    const costs = new Costs(this.pids);
    const startedAt = systemClock.now();
    await writer.requestLines(`/flood/${FLOOD_LINES - 1}`);
    await follower.waitForLine(FLOOD_LINES);
    const seconds = (systemClock.now() - startedAt) / 1_000;
    const written = Math.round((FLOOD_LINES * LINE_BYTES) / seconds / 1e5) / 10;
    const figures = {
      writtenMbPerSecond: written,
      ...costs.sinceStart(follower.lines),
      missed: follower.missingLines,
    };
    return this.report('flood', [follower], { ...figures, lagMs: summarise(follower.delaysMs) });
  }

  /** Measures many followers of replicas that write evenly. */
  async measureManyFollowers(): Promise<Readonly<Record<string, unknown>>> {
    const writers = await startWriters(this.cluster, 'even', WRITERS);
    const clients: CoordinatorClient[] = [];
    for (let count = 0; count < FOLLOWERS; count += FOLLOWERS_PER_CONNECTION)
      clients.push(this.cluster.client); // a separate connection
    const followers = Array.from({ length: FOLLOWERS }, (_, index) => {
      const client = clients[index % clients.length];
      const writer = writers[index % writers.length];
      if (client === undefined || writer === undefined) throw new Error('no replica runs');
      return new LogFollower(client, writer.containerId, BATCH_BYTES);
    });
    await Promise.all(followers.map((follower) => follower.waitForLine(1)));
    const costs = new Costs(this.pids);
    for (const writer of writers)
      await writer.requestLines(`/pace/${PACE_PER_SECOND}/${PACE_LINES}`);
    await Promise.all(followers.map((follower) => follower.waitForLine(PACE_LINES + 1)));
    const lags = followers.flatMap(({ delaysMs }) => delaysMs.slice(1));
    const terms = { followers: FOLLOWERS, writers: WRITERS, linesPerSecondEach: PACE_PER_SECOND };
    const figures = {
      ...terms,
      ...costs.sinceStart(FOLLOWERS * PACE_LINES),
      missed: sumMissing(followers),
      lagMs: summarise(lags),
    };
    return this.report('even', followers, figures);
  }

  private async report(
    name: string,
    followers: readonly LogFollower[],
    figures: Readonly<Record<string, unknown>>,
  ): Promise<Readonly<Record<string, unknown>>> {
    await Promise.all(followers.map((follower) => follower.stop()));
    await this.cluster.client.deleteWorkload({ name });
    const faults = sumViolations(followers);
    this.violations.checkZero(faults, `${name}: lines lost or repeated without a marker`);
    process.stderr.write(`${name}: ${JSON.stringify(figures)}\n`);
    return { ...figures, lostOrRepeatedWithoutMarker: faults };
  }
}

const violations = new Violations();
const cluster = await RealCluster.start(['zone-a']);
try {
  const agent = cluster.requireAgent('agent-1').pid;
  const pids = { agent, coordinator: cluster.coordinatorProcess.pid, client: process.pid };
  const measurements = new Measurements(cluster, pids, violations);
  const results = {
    read: await measurements.measureExistingLog(BATCH_BYTES, 'read'),
    readOneLineAMessage: await measurements.measureExistingLog(0, 'read-singly'),
    flood: await measurements.measureFullSpeed(),
    even: await measurements.measureManyFollowers(),
    docker: await measureDocker(LINES),
  };
  const goals = 'read.linesPerCoreSecond 100000';
  printReport('logs', { lineBytes: LINE_BYTES, goals, ...results, violations: violations.texts });
} finally {
  await cluster.stop();
}
process.exit(violations.exitCode());
