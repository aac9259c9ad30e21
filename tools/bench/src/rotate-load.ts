import { X509Certificate } from 'node:crypto';
import {
  fromConnectError,
  ReplicaStatus_Phase as Phase,
  type CoordinatorClient,
  type WatchWorkloadsResponse,
} from '@cloudless/api';
import { errorMessageOf, sleep } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { type CertificateUser, ExecCall, type SecureCluster } from '@cloudless/e2e';

/** Work that runs until it is stopped, and what went wrong meanwhile. */
export interface Load {
  /** What went wrong, one text each. */
  readonly failures: readonly string[];
  /** Figures for the report. */
  readonly figures: Readonly<Record<string, unknown>>;
  run(signal: AbortSignal): Promise<void>;
}

const delay = (ms: number, signal: AbortSignal): Promise<void> =>
  sleep(systemClock, ms, signal).catch(() => undefined);

/** Most calls at the same time: a coordinator accepts 64 streams of one client. */
const MAX_RUNNING = 40;

/**
 * Sends calls at a fixed rate over one connection, at most {@link MAX_RUNNING} at the same time: on
 * a machine that is too busy the rate is lower.
 */
export class CallLoad implements Load {
  readonly failures: string[] = [];
  private readonly delaysMs = new Map<string, number[]>();
  private readonly running = new Set<Promise<void>>();
  private shed = 0;

  constructor(
    private readonly client: CoordinatorClient,
    private readonly callsPerSecond: number,
  ) {}

  get figures(): Readonly<Record<string, unknown>> {
    const byName = Object.fromEntries(
      [...this.delaysMs].map(([name, delaysMs]) => {
        const sorted = [...delaysMs].sort((a, b) => a - b);
        const at = (share: number): number =>
          Math.round(sorted[Math.floor(sorted.length * share)] ?? 0);
        const maxMs = Math.round(sorted.at(-1) ?? 0);
        return [name, { calls: sorted.length, medianMs: at(0.5), p99Ms: at(0.99), maxMs }];
      }),
    );
    return { ...byName, shedAndRepeated: this.shed };
  }

  async run(signal: AbortSignal): Promise<void> {
    const startedAt = systemClock.now();
    for (let sent = 0; !signal.aborted; sent += 1) {
      const dueMs = startedAt + (sent * 1_000) / this.callsPerSecond - systemClock.now();
      if (dueMs > 0) await delay(dueMs, signal);
      while (this.running.size >= MAX_RUNNING) await Promise.race(this.running);
      if (signal.aborted) break;
      const call = this.call(sent).finally(() => this.running.delete(call));
      this.running.add(call);
    }
    await Promise.all(this.running);
  }

  private async call(index: number): Promise<void> {
    const name = chooseCall(index);
    const startedAt = systemClock.now();
    try {
      await retryWhileOverloaded(
        () => this.send(name, index),
        () => (this.shed += 1),
      );
      const delaysMs = this.delaysMs.get(name) ?? [];
      delaysMs.push(systemClock.now() - startedAt);
      this.delaysMs.set(name, delaysMs);
    } catch (reason) {
      this.failures.push(`${name} ${index}: ${errorMessageOf(reason)}`);
    }
  }

  private send(name: string, index: number): Promise<unknown> {
    const { client } = this;
    if (name === 'list') return client.listWorkloads({ includeReplicas: true });
    if (name === 'events') return client.listEvents({ newestFirst: true, pageSize: 10 });
    if (name === 'get') return client.getWorkload({ name: 'steady' });
    const labels = { count: String(index) };
    return client.updateWorkload({ name: 'written', spec: { labels } });
  }
}

/**
 * Makes a call. A busy coordinator sheds calls, and every client tries again then, as cloudlessctl
 * does.
 * @param onShed - Called for each attempt that was shed.
 */
export async function retryWhileOverloaded<Reply>(
  send: () => Promise<Reply>,
  onShed: () => void,
): Promise<Reply> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await send();
    } catch (reason) {
      const isShed = fromConnectError(reason).kind === 'exhausted';
      if (!isShed || attempt === MAX_ATTEMPTS) throw reason;
      onShed();
      await sleep(systemClock, 1_000 * attempt);
    }
  }
}

/** Attempts of a call that the coordinator sheds. */
const MAX_ATTEMPTS = 5;

/** One of 25 calls changes something, one of 10 reads a list, one of 10 reads events. */
function chooseCall(index: number): 'list' | 'events' | 'update' | 'get' {
  if (index % 25 === 2) return 'update';
  return index % 10 === 0 ? 'list' : index % 10 === 1 ? 'events' : 'get';
}

/** Opens a new connection with the newest certificate of a user, again and again. */
export class ConnectionLoad implements Load {
  readonly failures: string[] = [];
  private connections = 0;
  private shed = 0;

  constructor(
    private readonly cluster: SecureCluster,
    private readonly user: CertificateUser,
    private readonly intervalMs: number,
  ) {}

  get figures(): Readonly<Record<string, unknown>> {
    return { connections: this.connections, shedAndRepeated: this.shed };
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const clients = this.user.openClients(this.cluster.url);
      try {
        await retryWhileOverloaded(
          () => clients.users.whoAmI({}),
          () => (this.shed += 1),
        );
        this.connections += 1;
      } catch (reason) {
        this.failures.push(`new connection: ${errorMessageOf(reason)}`);
      } finally {
        clients.close();
      }
      await delay(this.intervalMs, signal);
    }
  }
}

/** Keeps one command with streamed input running, and requires an echo of each line. */
export class ExecLoad implements Load {
  readonly failures: string[] = [];
  private lines = 0;

  constructor(
    private readonly client: CoordinatorClient,
    private readonly name: string,
  ) {}

  get figures(): Readonly<Record<string, unknown>> {
    return { echoedLines: this.lines };
  }

  async run(signal: AbortSignal): Promise<void> {
    const call = new ExecCall(this.client, {
      name: this.name,
      command: ['cat'],
    });
    try {
      while (!signal.aborted) {
        const text = `line ${this.lines + 1}\n`;
        call.sendText(text);
        await call.readUntil((stdout) => stdout.endsWith(text));
        this.lines += 1;
        await delay(100, signal);
      }
      call.endInput();
      const exitCode = await call.readExitCode();
      if (exitCode !== 0) this.failures.push(`exec: exit code ${exitCode}`);
    } catch (reason) {
      this.failures.push(`exec after ${this.lines} lines: ${errorMessageOf(reason)}`);
    }
  }
}

/** Updates a workload as soon as its last rollout has ended. */
export class RolloutLoad implements Load {
  readonly failures: string[] = [];
  private rollouts = 0;

  constructor(
    private readonly client: CoordinatorClient,
    private readonly name: string,
  ) {}

  get figures(): Readonly<Record<string, unknown>> {
    return { rollouts: this.rollouts };
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const env = { ROUND: String(this.rollouts) };
        const { generation } = await this.client.updateWorkload({ name: this.name, spec: { env } });
        await this.waitUntilSettled(generation, signal);
        this.rollouts += 1;
      } catch (reason) {
        if (!signal.aborted) this.failures.push(`rollout: ${errorMessageOf(reason)}`);
        await delay(500, signal);
      }
    }
  }

  private async waitUntilSettled(generation: bigint, signal: AbortSignal): Promise<void> {
    // A watch that is only left would stay open.
    const ending = new AbortController();
    const watch = this.client.watchWorkloads(
      { name: this.name },
      { signal: AbortSignal.any([signal, ending.signal]) },
    );
    try {
      if (await isSettled(watch, generation)) return;
    } finally {
      ending.abort();
    }
    throw new Error(`the watch of ${this.name} ended`);
  }
}

/** Reads a watch until the rollout of a generation has ended; false when the watch ends before. */
async function isSettled(
  watch: AsyncIterable<WatchWorkloadsResponse>,
  generation: bigint,
): Promise<boolean> {
  for await (const { workload } of watch) {
    const { status } = workload ?? {};
    if (status === undefined || status.observedGeneration < generation) continue;
    const { desiredReplicas: want, readyReplicas, updatedReplicas, totalReplicas } = status;
    const isLeaving = status.replicas.some(
      ({ phase }) => phase === Phase.STOPPING || phase === Phase.STOPPED,
    );
    if (
      [readyReplicas, updatedReplicas, totalReplicas].every((count) => count === want) &&
      !isLeaving
    )
      return true;
  }
  return false;
}

/** Reads the certificate in a container, and requires that it is valid and its root is trusted. */
export class WorkloadCertificateLoad implements Load {
  readonly failures: string[] = [];
  private readonly serials = new Set<string>();
  private reads = 0;
  /** SHA-256 of the root of the newest certificate. */
  newestRoot = '';

  constructor(
    private readonly client: CoordinatorClient,
    private readonly name: string,
  ) {}

  get figures(): Readonly<Record<string, unknown>> {
    return { reads: this.reads, certificates: this.serials.size };
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await retryWhileOverloaded(
          () => this.check(),
          () => undefined,
        );
      } catch (reason) {
        this.failures.push(`certificate of ${this.name}: ${errorMessageOf(reason)}`);
      }
      await delay(1_000, signal);
    }
  }

  private async check(): Promise<void> {
    // The link is read once, so that both files belong together.
    const read = 'cat tls.crt && echo :roots: && cat ca.crt';
    const command = ['sh', '-c', `cd "$(readlink -f $CLOUDLESS_IDENTITY_DIR/..data)" && ${read}`];
    const { stdout, stderr } = await this.client.execCommand({ name: this.name, command });
    const [chain = '', bundle = ''] = stdout.split(':roots:');
    const certificates = splitPem(chain);
    const [leaf] = certificates;
    const root = certificates.at(-1);
    if (leaf === undefined || root === undefined) throw new Error(`no certificate: ${stderr}`);
    this.reads += 1;
    this.serials.add(leaf.serialNumber);
    this.newestRoot = root.fingerprint256;
    if (Date.parse(leaf.validTo) <= Date.now()) this.failures.push(`expired at ${leaf.validTo}`);
    const isTrusted = splitPem(bundle).some(
      ({ fingerprint256 }) => fingerprint256 === this.newestRoot,
    );
    if (!isTrusted) this.failures.push(`the root of the certificate is not in ca.crt`);
  }
}

/** Parses the certificates of a text in PEM. */
export function splitPem(text: string): readonly X509Certificate[] {
  const parts = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return parts.map((pem) => new X509Certificate(pem));
}

/** Follows a log with cloudlessctl, whose own identity renews itself, and requires every line. */
export class LogCommandLoad implements Load {
  readonly failures: string[] = [];
  private lines = 0;

  constructor(
    private readonly cluster: SecureCluster,
    private readonly name: string,
  ) {}

  get figures(): Readonly<Record<string, unknown>> {
    return { lines: this.lines };
  }

  async run(signal: AbortSignal): Promise<void> {
    const program = this.cluster.startCtl('logs', '-f', this.name, '-o', 'json', '--tail', '0');
    let hasEnded = false;
    void program.exited.then(() => (hasEnded = true));
    while (!signal.aborted && !hasEnded) await delay(200, signal);
    if (hasEnded) this.failures.push(`logs -f ended: ${program.lines.slice(-3).join(' | ')}`);
    await program.kill('SIGTERM');
    let last: bigint | undefined;
    for (const text of program.lines) {
      if (!text.startsWith('{')) {
        this.failures.push(`logs -f: ${text}`);
        continue;
      }
      const sequence = BigInt((JSON.parse(text) as { readonly sequence: string }).sequence);
      if (last !== undefined && sequence !== last + 1n)
        this.failures.push(`logs -f: line ${sequence} after line ${last}`);
      last = sequence;
      this.lines += 1;
    }
    if (this.lines === 0) this.failures.push('logs -f printed no line');
  }
}
