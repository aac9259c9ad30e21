import type { StreamResponse } from '@connectrpc/connect';
import type { CoordinatorConnection } from './io.js';
import {
  isLeaderMissing,
  LEADER_RETRY_TIMES,
  retryWithoutLeader,
  type LeaderRetryTimes,
} from './retry-without-leader.js';

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
  /** Default: {@link LEADER_RETRY_TIMES}. */
  readonly retryTimes?: LeaderRetryTimes;
}

/** The open connection to one of the coordinators. */
interface Connected {
  readonly index: number;
  readonly transport: CoordinatorConnection['transport'];
}

/**
 * Creates a connection to whichever coordinator answers: before each call the open connection is
 * used, or the next address is tried, each once. A call is sent to one coordinator only and never
 * repeated here, so that no change is made twice: a call whose connection breaks fails, and the next
 * call finds another coordinator. Only a call that a coordinator has refused, because it knows no
 * leader, is sent to the next coordinator: one that is cut off from the others must not block them.
 */
export function connectToAny({
  servers,
  open,
  connectTimeoutMs = CONNECT_TIMEOUT_MS,
  retryTimes = LEADER_RETRY_TIMES,
}: FailoverOptions): CoordinatorConnection {
  const connections = new Map<string, CoordinatorConnection>();
  let current = 0;
  let isClosed = false;

  const drop = (server: string): void => {
    connections.get(server)?.close();
    connections.delete(server);
  };

  /** Concurrent calls that fail together move on once. */
  const moveOn = (index: number): void => {
    if (current === index) current = (index + 1) % servers.length;
  };

  /** The connection stays open for other calls that run over it. */
  const leaveWithoutLeader = (index: number, reason: unknown): void => {
    if (isLeaderMissing(reason)) moveOn(index);
  };

  /** @throws the failure of the last address when none is reached. */
  const connect = async (signal: AbortSignal | undefined): Promise<Connected> => {
    for (let attempt = 1; ; attempt += 1) {
      const index = current;
      const server = servers[index] ?? '';
      const connection = connections.get(server) ?? open(server);
      connections.set(server, connection);
      try {
        const isLast = attempt >= servers.length;
        await prepare(connection, isLast ? undefined : connectTimeoutMs, signal);
        return { index, transport: connection.transport };
      } catch (reason) {
        drop(server);
        moveOn(index);
        if (attempt >= servers.length || isClosed || signal?.aborted === true) throw reason;
      }
    }
  };

  return {
    transport: {
      unary: (method, signal, timeoutMs, ...rest) =>
        retryWithoutLeader(
          async (remainingMs) => {
            const { index, transport } = await connect(signal);
            try {
              return await transport.unary(method, signal, remainingMs, ...rest);
            } catch (reason) {
              leaveWithoutLeader(index, reason);
              throw reason;
            }
          },
          { signal, timeoutMs, coordinators: servers.length },
          retryTimes,
        ),
      stream: async (method, signal, ...rest) => {
        const { index, transport } = await connect(signal);
        const onError = (reason: unknown): void => leaveWithoutLeader(index, reason);
        try {
          return watchErrors(await transport.stream(method, signal, ...rest), onError);
        } catch (reason) {
          onError(reason);
          throw reason;
        }
      },
    },
    close: () => {
      isClosed = true;
      for (const server of [...connections.keys()]) drop(server);
    },
  };
}

function watchErrors<Response extends Pick<StreamResponse, 'message'>>(
  response: Response,
  onError: (reason: unknown) => void,
): Response {
  return { ...response, message: passErrors(response.message, onError) };
}

async function* passErrors<Item>(
  items: AsyncIterable<Item>,
  onError: (reason: unknown) => void,
): AsyncGenerator<Item> {
  try {
    yield* items;
  } catch (reason) {
    onError(reason);
    throw reason;
  }
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
