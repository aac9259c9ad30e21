import { chmodSync, linkSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import net from 'node:net';
import { basename, dirname, join } from 'node:path';
import {
  definedFields,
  errorCodeOf,
  errorFields,
  errorMessageOf,
  sleep,
  StoppedError,
  type Clock,
  type Log,
} from '@cloudless/base';
import { NETWORK_FOLDER } from './proxy-program.js';

/** Delay after an attempt that failed although no process seemed to hold the lock, milliseconds. */
const RETRY_MS = 100;
/** Delay after an attempt that failed because of the directory of the lock, milliseconds. */
const RETRY_DIRECTORY_MS = 5_000;
/** Most characters of the node id of another cluster that a problem shows. */
const MAX_SHOWN_ID = 64;
/** Most characters of the line in which the holder describes itself. */
const MAX_LINE = 1_024;
/** Text that Linux appends to the path of a deleted working directory. */
const DELETED = ' (deleted)';

/** The process that serves the virtual addresses of a network namespace. */
export interface LockHolder {
  readonly nodeId: string;
  readonly pid: number;
  /** Absent before the node has joined its cluster, and for a proxy of an earlier version. */
  readonly clusterId?: string;
}

/** The node that waits for the lock, with which {@link explainHolder} compares the holder. */
export interface LockWaiter {
  readonly nodeId: string;
  /** Absent before the node has joined its cluster. */
  readonly clusterId?: string | undefined;
  /**
   * Returns true for the id of a node of the cluster. Undefined: the nodes are not known yet.
   */
  readonly isNode: ((nodeId: string) => boolean) | undefined;
}

/**
 * Returns why workloads of this node do not reach the services of their cluster, and what to do;
 * undefined when the holder is a node of the cluster, or while that is not known.
 * @param findDirectory - Returns the working directory of a process, for tests.
 */
export function explainHolder(
  holder: LockHolder,
  waiter: LockWaiter,
  findDirectory: (pid: number) => string | undefined = readWorkingDirectory,
): string | undefined {
  if (!servesOtherCluster(holder, waiter)) return undefined;
  const { nodeId, pid } = holder;
  const claim = JSON.stringify(nodeId.slice(0, MAX_SHOWN_ID));
  return (
    `virtual addresses of this machine are not served: process ${pid}, the network proxy of node ` +
    `${claim} of another cluster, serves those of its own cluster; one machine serves one ` +
    `cluster: ${adviseEnd(pid, findDirectory(pid))}`
  );
}

/** Nodes of two clusters may have the same id: the ids of the clusters count, if both are known. */
function servesOtherCluster(
  holder: LockHolder,
  { nodeId, clusterId, isNode }: LockWaiter,
): boolean {
  if (holder.clusterId !== undefined && clusterId !== undefined)
    return holder.clusterId !== clusterId;
  if (isNode === undefined) return false;
  // A node has one proxy. So a holder with the id of this node belongs to another cluster.
  return holder.nodeId === nodeId || !isNode(holder.nodeId);
}

/** Returns what to do about the proxy of another cluster with this working directory. */
function adviseEnd(pid: number, workingDirectory: string | undefined): string {
  const path = workingDirectory?.replace(DELETED, '');
  if (path === undefined || basename(path) !== NETWORK_FOLDER)
    return `end that agent and its network proxy ("cloudless-agent reset" in its data directory)`;
  const dataDir = dirname(path);
  return workingDirectory?.endsWith(DELETED)
    ? `its data directory ${dataDir} was deleted: end the process ("kill ${pid}")`
    : `end the agent of the data directory ${dataDir} and its network proxy ("cloudless-agent ` +
        `reset --data-dir ${dataDir}")`;
}

/** Returns the working directory of a process; undefined when it cannot be read. */
function readWorkingDirectory(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return undefined;
  }
}

export interface NamespaceLockOptions {
  /**
   * Prepares the directory of the lock, and returns its path. Throws when no process may hold a
   * lock there, with the reason.
   */
  readonly directory: () => string;
  /** Name of the network namespace in the directory. */
  readonly namespace: string;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The lock of a network namespace: of the proxies of several agents in it, one serves the virtual
 * addresses. The next proxy takes over as soon as the holder ends.
 *
 * The lock is a Unix socket in a directory that only its user may write, so that no other user of the
 * machine can take the lock or pretend to hold it. The socket with the highest number counts, and is
 * void when no process listens. To replace a void socket, a process links its own under the next
 * number (`link` fails when the name exists) and then deletes the earlier ones: one process can
 * replace a given holder, and a process that read an outdated list finds a higher number and gives
 * up.
 */
export class NamespaceLock {
  private server: net.Server | undefined;
  private held: string | undefined;
  private lastProblem: string | undefined;
  private drafts = 0;
  /** Connections of the processes that wait for the lock. */
  private readonly waiting = new Set<net.Socket>();
  /** The holder of the lock, while this process waits for the lock. */
  holder: LockHolder | undefined;

  /** @param describeSelf - Returns what the holder of the lock says about itself. */
  constructor(
    private readonly describeSelf: () => LockHolder,
    private readonly options: NamespaceLockOptions,
  ) {}

  /** The socket that holds the lock; undefined while this process does not hold it. */
  get socket(): net.Server | undefined {
    return this.server;
  }

  /** The socket for a successor; undefined while this process does not hold the lock. */
  get handed(): { readonly server: net.Server; readonly path: string | undefined } | undefined {
    return this.server === undefined ? undefined : { server: this.server, path: this.held };
  }

  /** Reason for people why no process can hold the lock at the moment. */
  get problem(): string | undefined {
    return this.lastProblem;
  }

  /**
   * Takes the lock that a predecessor of this process has handed over.
   * @param path - Path of the socket. A lock of another place is given up: the processes of this user
   *   would not find it.
   */
  adopt(server: net.Server, path: string | undefined): void {
    const isHere = path !== undefined && this.isOwnPath(path);
    if (!isHere) return void server.close();
    this.introduce(server);
    this.hold(server, path);
  }

  /**
   * Waits for the lock.
   * @throws StoppedError when `signal` is aborted first.
   */
  async acquire(signal: AbortSignal): Promise<void> {
    while (this.server === undefined) {
      if (signal.aborted) throw new StoppedError();
      let delayMs = RETRY_MS;
      try {
        if (await this.tryAcquire(this.options.directory(), signal)) return;
        this.lastProblem = undefined;
      } catch (reason) {
        delayMs = RETRY_DIRECTORY_MS;
        this.noteProblem(reason);
      }
      if (!signal.aborted) await sleep(this.options.clock, delayMs, signal);
    }
  }

  /** Sends the current description of the holder to the processes that wait for the lock. */
  announce(): void {
    for (const socket of this.waiting) this.sendDescription(socket);
  }

  /** Gives the lock up. Does not affect a process that has got the socket. */
  release(): void {
    this.server?.close();
    this.server = undefined;
    this.held = undefined;
    for (const socket of this.waiting) socket.destroy();
  }

  /** Waits for the holder, if there is one, and otherwise tries to become the holder. */
  private async tryAcquire(directory: string, signal: AbortSignal): Promise<boolean> {
    const before = Math.max(0, ...this.listNumbers(directory));
    if (before > 0 && (await this.waitForHolder(this.pathOf(directory, before), signal))) {
      this.holder = undefined;
      return false;
    }
    this.drafts += 1;
    const draft = join(
      directory,
      `${this.options.namespace}.draft.${this.describeSelf().pid}.${this.drafts}`,
    );
    const path = this.pathOf(directory, before + 1);
    const server = await listen(draft);
    this.introduce(server);
    try {
      chmodSync(draft, 0o600);
      linkSync(draft, path);
    } catch (reason) {
      this.drop(server);
      if (errorCodeOf(reason) === 'EEXIST') return false;
      throw reason;
    } finally {
      rmSync(draft, { force: true });
    }
    const numbers = this.listNumbers(directory);
    if (Math.max(...numbers) !== before + 1) {
      this.drop(server);
      rmSync(path, { force: true });
      return false;
    }
    for (const earlier of numbers)
      if (earlier <= before) rmSync(this.pathOf(directory, earlier), { force: true });
    this.hold(server, path);
    return true;
  }

  private drop(server: net.Server): void {
    server.close();
    for (const socket of this.waiting) socket.destroy();
  }

  private hold(server: net.Server, path: string): void {
    this.server = server;
    this.held = path;
    this.holder = undefined;
    this.lastProblem = undefined;
  }

  /** Says who holds the lock to everyone who waits, and keeps their connections until the end. */
  private introduce(server: net.Server): void {
    server.on('connection', (socket) => {
      this.waiting.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => this.waiting.delete(socket));
      socket.resume();
      this.sendDescription(socket);
    });
    server.unref();
  }

  private sendDescription(socket: net.Socket): void {
    socket.write(`${JSON.stringify(this.describeSelf())}\n`);
  }

  /**
   * Resolves when the holder has ended: to true, or to false when no process listens at the socket.
   */
  private waitForHolder(path: string, signal: AbortSignal): Promise<boolean> {
    return new Promise<boolean>((resolve) => {
      const socket = net.connect(path);
      let isVoid = false;
      let text = '';
      const end = (): void => void socket.destroy();
      signal.addEventListener('abort', end, { once: true });
      if (signal.aborted) end();
      // Any other error, such as a full queue of connections, says nothing about the holder.
      socket.on('error', (reason) => {
        isVoid = ['ECONNREFUSED', 'ENOENT'].includes(errorCodeOf(reason) ?? '');
      });
      socket.on('data', (chunk: Buffer) => {
        const lines = `${text}${chunk.toString()}`.split('\n');
        text = (lines.pop() ?? '').slice(0, MAX_LINE);
        for (const line of lines) this.storeDescription(line);
      });
      socket.on('close', () => {
        signal.removeEventListener('abort', end);
        resolve(!isVoid);
      });
    });
  }

  /** Stores a description of the holder: each line replaces the line before. */
  private storeDescription(line: string): void {
    const isKnown = this.holder !== undefined;
    const holder = parseHolder(line);
    this.holder = holder;
    this.lastProblem = undefined;
    if (isKnown) return;
    this.options.log.info('another proxy serves the virtual addresses of this machine', {
      holderNodeId: holder.nodeId,
      holderPid: holder.pid,
    });
  }

  private noteProblem(reason: unknown): void {
    const problem = `virtual addresses of this machine are not served: ${errorMessageOf(reason)}`;
    if (problem !== this.lastProblem)
      this.options.log.error('no lock of the network namespace', errorFields(reason));
    this.lastProblem = problem;
  }

  private listNumbers(directory: string): readonly number[] {
    const prefix = `${this.options.namespace}.lock.`;
    return readdirSync(directory).flatMap((name) => {
      const text = name.startsWith(prefix) ? name.slice(prefix.length) : '';
      return /^\d{1,15}$/.test(text) ? [Number(text)] : [];
    });
  }

  private pathOf(directory: string, number: number): string {
    return join(directory, `${this.options.namespace}.lock.${number}`);
  }

  private isOwnPath(path: string): boolean {
    try {
      return path.startsWith(join(this.options.directory(), `${this.options.namespace}.lock.`));
    } catch {
      return false;
    }
  }
}

function parseHolder(line: string): LockHolder {
  try {
    const { nodeId, pid, clusterId } = JSON.parse(line) as Partial<LockHolder>;
    return {
      ...{ nodeId: String(nodeId ?? ''), pid: Number(pid ?? 0) },
      ...definedFields({ clusterId: clusterId === undefined ? undefined : String(clusterId) }),
    };
  } catch {
    return { nodeId: '', pid: 0 };
  }
}

function listen(path: string): Promise<net.Server> {
  const server = net.createServer();
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, () => {
      server.off('error', reject);
      resolve(server);
    });
  });
}
