import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Code } from '@connectrpc/connect';
import { HistoryRecorder } from '@cloudless/state-store/linearizability';
import {
  RequestClient,
  RunningProgram,
  findBundle,
  runToEnd,
  type SecureClients,
} from '@cloudless/e2e';
import { findOverlaps, readSpans } from '../checks/exclusive-spans.js';
import { findLineFaults } from '../checks/line-numbers.js';
import { findHistoryFaults } from '../checks/write-history.js';
import { findWriteFaults, type Acknowledgement, type WriteRecord } from '../checks/write-record.js';
import type { CoordinatorMachine } from '../world/coordinator-machine.js';
import type { World } from '../world/world.js';
import { COUNTER, WEB, toHeartbeatsFile } from './workloads.js';
import { Reader, readRecorded } from './reader.js';
import { SHARED, Writer, toAnswer, type Attempt, type History } from './writer.js';

/** Writers that share one connection to each coordinator. */
const WRITERS_PER_CONNECTION = 10;
/** Clients that read; all share one connection to each coordinator. */
const READERS = 6;
/** Time limit of a request to a workload when times are not judged, milliseconds. */
const UNTIMED_ANSWER_MS = 60_000;
/** Time for the last results of the writers, and deadline of a final read, milliseconds. */
const READ_MS = 30_000;
const LOGIN_ATTEMPTS = 5;
/** Time between two looks at the writers, milliseconds. */
const RETRY_MS = 50;
/** Workloads on a page of a final read. */
const PAGE = 1_000;

/** What the clients saw during a fault. */
export interface Seen {
  /** Attempts of writes that were acknowledged, and that failed, by code. */
  readonly acknowledged: number;
  readonly failed: Readonly<Record<string, number>>;
  /** Requests to workloads that were answered and that failed. */
  readonly answers: number;
  readonly failures: readonly string[];
  readonly attempts: readonly Attempt[];
  /** Different texts of failures with code INTERNAL or UNKNOWN, which name no known cause. */
  readonly oddities: readonly string[];
}

/** The clients of a run: writers, request clients, and a follower of a log. */
export class Load {
  private readonly writers: Writer[] = [];
  private readonly readers: Reader[] = [];
  private readonly history: History = new HistoryRecorder();
  private readonly requests: RequestClient[] = [];
  private follower: RunningProgram | undefined;
  /** Lines of the followers before the current one. */
  private earlierLines = 0;
  private sharedGeneration = 0n;
  private readonly seen = { answers: 0, failures: 0 };
  /** Acknowledged writes so far. */
  acknowledged = 0;

  private constructor(private readonly world: World) {}

  /**
   * Starts the clients. The workloads must run.
   * @param isTimed - False on a machine so busy that a replica may get no CPU for seconds.
   */
  static async start(world: World, writerCount: number, isTimed: boolean): Promise<Load> {
    const load = new Load(world);
    const open = (): Promise<readonly SecureClients[]> =>
      Promise.all(world.coordinators.map((each) => each.openClients(world.token)));
    let connections = await open();
    const [first] = connections;
    if (first === undefined) throw new Error('there is no coordinator');
    const created = await Writer.createShared(first.coordinator, load.history);
    load.sharedGeneration = created.generation;
    for (const kind of ['kept', 'new'] as const) {
      const clients = await open();
      let turn = 0;
      const next = (): SecureClients['coordinator'] =>
        (clients[turn++ % clients.length] ?? first).coordinator;
      const client = new RequestClient(
        next,
        WEB,
        kind,
        ({ nodeId }) => world.requireAgent(nodeId).machine.address,
        isTimed ? undefined : UNTIMED_ANSWER_MS,
      );
      await client.start();
      load.requests.push(client);
    }
    for (let index = 0; index < writerCount; index += 1) {
      if (index > 0 && index % WRITERS_PER_CONNECTION === 0) connections = await open();
      load.writers.push(new Writer(index, connections.map(toCoordinator), load.history));
    }
    await load.startFollower();
    for (const writer of load.writers) writer.start();
    await load.waitForAcknowledgements();
    const forReaders = (await open()).map(toCoordinator);
    for (let index = 0; index < READERS; index += 1)
      load.readers.push(new Reader(index, forReaders, writerCount, load.history));
    for (const reader of load.readers) reader.start();
    return load;
  }

  /**
   * Waits until each writer has created its workload, so that the first fault meets a steady load.
   */
  private async waitForAcknowledgements(): Promise<void> {
    while (this.writers.some(({ records }) => records.length === 0)) await pause(RETRY_MS);
  }

  /** Returns what the clients saw since the last call. */
  takeSeen(): Seen {
    const attempts = this.writers.flatMap((writer) => writer.takeAttempts());
    const failed: Record<string, number> = {};
    for (const { code } of attempts) {
      if (code === undefined) continue;
      const name = Code[code] ?? String(code);
      failed[name] = (failed[name] ?? 0) + 1;
    }
    const acknowledged = attempts.filter(({ code }) => code === undefined).length;
    this.acknowledged += acknowledged;
    const answers = this.requests.reduce((sum, each) => sum + each.answers.length, 0);
    const failures = this.requests.flatMap((each) => each.failures);
    const result = {
      attempts,
      acknowledged,
      failed,
      answers: answers - this.seen.answers,
      failures: failures.slice(this.seen.failures).map(({ reason }) => reason),
      oddities: [
        ...new Set(
          attempts
            .filter(({ code }) => code === Code.Internal || code === Code.Unknown)
            .map(({ message }) => message),
        ),
      ],
    };
    this.seen.answers = answers;
    this.seen.failures = failures.length;
    return result;
  }

  /** Returns what is wrong with the followed log so far. */
  findLogProblems(): readonly string[] {
    const { lines, hasEnded } = this.requireFollower();
    const numbers = lines.filter((line) => /^\d+$/.test(line)).map(Number);
    const { missing, repeated, first } = findLineFaults(numbers);
    const problems = [];
    if (hasEnded) problems.push(`logs -f has ended: ${lines.slice(-2).join(' | ')}`);
    if (missing + repeated > 0)
      problems.push(`logs -f: ${missing} lines missing, ${repeated} repeated, first ${first}`);
    if (numbers.length === 0) problems.push('logs -f printed no line');
    return problems;
  }

  /** Starts a new follower of the log if the current one has ended. */
  async reviveFollower(): Promise<void> {
    if (!this.requireFollower().hasEnded) return;
    this.earlierLines += this.requireFollower().lines.length;
    await this.follow();
  }

  /** Number of lines that the followers printed. */
  get logLines(): number {
    return this.earlierLines + this.requireFollower().lines.length;
  }

  /** Returns a text for each time at which two replicas of the exclusive workload ran. */
  findExclusiveProblems(): readonly string[] {
    return findOverlaps(readSpans(readFileSync(toHeartbeatsFile(this.world), 'utf8')));
  }

  /** Ends the clients, and compares the acknowledged writes with the state of the cluster. */
  async stop(): Promise<readonly string[]> {
    await Promise.all(this.writers.map((writer) => writer.stop(READ_MS)));
    await Promise.all(this.readers.map((reader) => reader.stop()));
    await Promise.all(this.requests.map((client) => client.stop()));
    await this.follower?.kill('SIGKILL');
    const problems = this.writers.flatMap(({ refusals }) => refusals);
    const records = this.joinRecords();
    const deleted = this.writers.flatMap((writer) => [...writer.deleted]);
    for (const coordinator of this.world.coordinators) {
      const final = await this.readFinal(coordinator);
      for (const record of records) {
        const { lost, twice } = findWriteFaults(record, final.get(record.name));
        problems.push(...lost.map((text) => `LOST on ${coordinator.name}: ${text}`));
        problems.push(...twice.map((text) => `TWICE on ${coordinator.name}: ${text}`));
      }
      for (const name of deleted)
        if (final.has(name)) problems.push(`LOST on ${coordinator.name}: deleted ${name} exists`);
    }
    return [...problems, ...findHistoryFaults(this.history.calls)];
  }

  /**
   * Writes all calls about workloads into `history.jsonl` of a directory, one line each, in the order
   * of their calls: for whoever looks for the cause of a violation.
   */
  writeHistory(directory: string): void {
    const lines = this.history.calls.map((call) =>
      JSON.stringify(call, (_key, value: unknown) =>
        typeof value === 'bigint' ? Number(value) : value,
      ),
    );
    writeFileSync(join(directory, 'history.jsonl'), `${lines.join('\n')}\n`);
  }

  /** Number of recorded writes and of recorded reads that were answered. */
  get historySize(): { readonly writes: number; readonly reads: number } {
    const answered = this.history.calls.filter(({ result }) => result !== undefined);
    const reads = answered.filter(({ input }) => input.call === 'read').length;
    return { writes: answered.length - reads, reads };
  }

  /** The records of all writers, one for each workload. */
  private joinRecords(): readonly WriteRecord[] {
    const shared = {
      name: SHARED,
      acknowledged: [{ generation: this.sharedGeneration, value: 'nobody' }],
      unknown: 0,
    };
    const own: WriteRecord[] = [];
    for (const record of this.writers.flatMap(({ records }) => records)) {
      if (record.name !== SHARED) own.push(record);
      else {
        shared.acknowledged.push(...record.acknowledged);
        shared.unknown += record.unknown;
      }
    }
    return [shared, ...own];
  }

  /** Reads all workloads from one coordinator. */
  private async readFinal(
    coordinator: CoordinatorMachine,
  ): Promise<ReadonlyMap<string, Acknowledgement>> {
    const { coordinator: client } = await coordinator.openClients(this.world.token);
    await readRecorded(client, SHARED, this.history, `the last read of ${coordinator.name}`);
    const final = new Map<string, Acknowledgement>();
    for (let pageToken = ''; ;) {
      const page = await client.listWorkloads(
        { pageSize: PAGE, pageToken },
        { timeoutMs: READ_MS },
      );
      for (const workload of page.workloads) final.set(workload.name, toAnswer(workload));
      pageToken = page.nextPageToken;
      if (pageToken === '') return final;
    }
  }

  private requireFollower(): RunningProgram {
    if (this.follower === undefined) throw new Error('the follower was not started');
    return this.follower;
  }

  private async startFollower(): Promise<void> {
    const { world } = this;
    const env = world.ctlEnv;
    const program = findBundle('cloudlessctl');
    // the server names the other coordinators, which cloudlessctl stores
    const login = [
      'login',
      world.coordinators[0]?.url ?? '',
      '--token-file',
      world.tokenFile,
      '--name',
      'chaos',
    ];
    for (let attempt = 1; ; attempt += 1) {
      const { code, stderr } = await runToEnd(process.execPath, [program, ...login], { env });
      if (code === 0) break;
      // the load of the start may cost a leader its lease on a slow machine
      if (attempt === LOGIN_ATTEMPTS) throw new Error(`cloudlessctl login: ${stderr}`);
    }
    await this.follow();
  }

  private async follow(): Promise<void> {
    const command = [findBundle('cloudlessctl'), 'logs', '-f', '--tail', '1', COUNTER];
    this.follower = RunningProgram.start(process.execPath, command, this.world.ctlEnv);
    await this.follower.waitForLine((line) => /^\d+$/.test(line));
  }
}

const toCoordinator = ({ coordinator }: SecureClients): SecureClients['coordinator'] => coordinator;
