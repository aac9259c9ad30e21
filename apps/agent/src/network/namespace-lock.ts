import net from 'node:net';
import { sleep, StoppedError, type Clock, type Log } from '@cloudless/base';

/**
 * Abstract Unix socket, see unix(7): it exists once in a network namespace, and ends with the process
 * that holds it.
 */
const LOCK_NAME = '\0cloudless-network-proxy';
/** Delay after an attempt that failed although nobody seemed to hold the lock, milliseconds. */
const RETRY_MS = 100;
/** Longest part of an unknown node id that is shown. */
const MAX_SHOWN_ID = 64;
/** Longest text that the holder says about itself. */
const MAX_TEXT = 1_024;

/** The process that serves the virtual addresses of a network namespace. */
export interface LockHolder {
  readonly nodeId: string;
  readonly pid: number;
}

/**
 * Returns why this process does not serve the virtual addresses of the machine. Every process of the
 * machine may take the name of the lock, so the holder is not believed to be a proxy of this cluster
 * unless its node is one.
 * @param isNode - Whether the cluster has a node with an id; undefined while the nodes are not known.
 */
export function explainHolder(
  { nodeId, pid }: LockHolder,
  isNode: ((nodeId: string) => boolean) | undefined,
): string {
  if (isNode === undefined || isNode(nodeId))
    return `node ${nodeId} (process ${pid}) serves the virtual addresses of this machine`;
  const claim = JSON.stringify(nodeId.slice(0, MAX_SHOWN_ID));
  return (
    `virtual addresses of this machine are not served: a process that calls itself node ${claim}, ` +
    `which is no node of this cluster, holds the lock; find it with "ss -xlp | grep ${LOCK_NAME.replace('\0', '@')}" and end it`
  );
}

/**
 * The lock of a network namespace: of the proxies of several agents in it, one serves the virtual
 * addresses. The next proxy takes over as soon as the holder ends.
 */
export class NamespaceLock {
  private server: net.Server | undefined;
  /** Connections of the processes that wait for the lock. */
  private readonly waiting = new Set<net.Socket>();
  /** Who holds the lock, while this process waits for it. */
  holder: LockHolder | undefined;

  constructor(
    private readonly self: LockHolder,
    private readonly deps: { readonly clock: Clock; readonly log: Log },
    /** For tests. Default: the one name of all proxies. */
    private readonly name = LOCK_NAME,
  ) {}

  /** The socket that holds the lock; undefined while this process does not hold it. */
  get socket(): net.Server | undefined {
    return this.server;
  }

  /** Takes the lock that a predecessor of this process has handed over. */
  adopt(server: net.Server): void {
    this.server = server;
    this.introduce(server);
  }

  /**
   * Waits for the lock.
   * @throws StoppedError when `signal` is aborted first.
   */
  async acquire(signal: AbortSignal): Promise<void> {
    while (this.server === undefined) {
      if (signal.aborted) throw new StoppedError();
      const server = net.createServer();
      if (await listen(server, this.name)) {
        this.holder = undefined;
        this.adopt(server);
        return;
      }
      await this.waitForHolder(signal);
    }
  }

  /** Gives the lock up. Does not affect a process that has got the socket. */
  release(): void {
    this.server?.close();
    this.server = undefined;
    for (const socket of this.waiting) socket.destroy();
  }

  /** Says who holds the lock to everyone who waits, and keeps their connections until the end. */
  private introduce(server: net.Server): void {
    server.on('connection', (socket) => {
      this.waiting.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => this.waiting.delete(socket));
      socket.resume();
      socket.write(`${JSON.stringify(this.self)}\n`);
    });
    server.unref();
  }

  /** Resolves when the holder has ended, or at once with a small delay when there is none. */
  private async waitForHolder(signal: AbortSignal): Promise<void> {
    const wasConnected = await new Promise<boolean>((resolve) => {
      const socket = net.connect(this.name);
      let isConnected = false;
      let text = '';
      const end = (): void => void socket.destroy();
      signal.addEventListener('abort', end, { once: true });
      if (signal.aborted) end();
      socket.on('connect', () => (isConnected = true));
      socket.on('error', () => undefined); // `close` follows
      socket.on('data', (chunk: Buffer) => {
        text = `${text}${chunk.toString()}`.slice(0, MAX_TEXT);
        if (text.includes('\n')) this.note(text);
      });
      socket.on('close', () => {
        signal.removeEventListener('abort', end);
        resolve(isConnected);
      });
    });
    if (!wasConnected) await sleep(this.deps.clock, RETRY_MS, signal);
  }

  private note(text: string): void {
    if (this.holder !== undefined) return;
    const holder = parseHolder(text);
    this.holder = holder;
    this.deps.log.info('another proxy serves the virtual addresses of this machine', {
      holderNodeId: holder.nodeId,
      holderPid: holder.pid,
    });
  }
}

function parseHolder(text: string): LockHolder {
  try {
    const { nodeId, pid } = JSON.parse(text) as Partial<LockHolder>;
    return { nodeId: String(nodeId ?? ''), pid: Number(pid ?? 0) };
  } catch {
    return { nodeId: '', pid: 0 };
  }
}

/** Returns false when the name is in use. */
function listen(server: net.Server, name: string): Promise<boolean> {
  return new Promise((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(name, () => resolve(true));
  });
}
