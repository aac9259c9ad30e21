import type { CoordinatorConnection } from './io.js';

/**
 * Time that an address has for the connection before the next address is tried, milliseconds. A
 * machine that is switched off does not even refuse a connection.
 */
const CONNECT_TIMEOUT_MS = 3_000;

/** Options of {@link connectToAny}. */
export interface FailoverOptions {
  /** Base addresses of the coordinators of one cluster, at least one. */
  readonly servers: readonly string[];
  open(server: string): CoordinatorConnection;
  /** Default: {@link CONNECT_TIMEOUT_MS}. */
  readonly connectTimeoutMs?: number;
}

/**
 * Creates a connection to whichever coordinator answers: before each call the open connection is
 * used, or the next address is tried, each once. A call is sent to one coordinator only and never
 * repeated here, so that no change is made twice: a call whose connection breaks fails, and the next
 * call finds another coordinator.
 */
export function connectToAny({
  servers,
  open,
  connectTimeoutMs = CONNECT_TIMEOUT_MS,
}: FailoverOptions): CoordinatorConnection {
  const connections = new Map<string, CoordinatorConnection>();
  let current = 0;
  let isClosed = false;

  const drop = (server: string): void => {
    connections.get(server)?.close();
    connections.delete(server);
  };

  /** @throws the failure of the last address when none is reached. */
  const connect = async (signal: AbortSignal | undefined): Promise<CoordinatorConnection> => {
    for (let attempt = 1; ; attempt += 1) {
      const index = current;
      const server = servers[index] ?? '';
      const connection = connections.get(server) ?? open(server);
      connections.set(server, connection);
      try {
        const isLast = attempt >= servers.length;
        await prepare(connection, isLast ? undefined : connectTimeoutMs, signal);
        return connection;
      } catch (reason) {
        drop(server);
        // Concurrent calls fail together and move on once.
        if (current === index) current = (index + 1) % servers.length;
        if (attempt >= servers.length || isClosed || signal?.aborted === true) throw reason;
      }
    }
  };

  return {
    transport: {
      unary: async (method, signal, ...rest) =>
        (await connect(signal)).transport.unary(method, signal, ...rest),
      stream: async (method, signal, ...rest) =>
        (await connect(signal)).transport.stream(method, signal, ...rest),
    },
    close: () => {
      isClosed = true;
      for (const server of [...connections.keys()]) drop(server);
    },
  };
}

/** @param timeoutMs - Undefined: no limit but the signal. */
async function prepare(
  connection: CoordinatorConnection,
  timeoutMs: number | undefined,
  signal: AbortSignal | undefined,
): Promise<void> {
  const limit = new AbortController();
  const stop = (): void => limit.abort(signal?.reason);
  signal?.addEventListener('abort', stop, { once: true });
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => limit.abort(new Error(`no connection within ${timeoutMs} ms`)), timeoutMs);
  try {
    await connection.prepare?.(limit.signal);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
}
