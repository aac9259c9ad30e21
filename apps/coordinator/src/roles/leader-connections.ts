import type { ClientHttp2Session } from 'node:http2';
import type { Interceptor, Transport } from '@connectrpc/connect';
import type { KnownLeader } from '@cloudless/api-server';
import { CloudlessError, type Clock } from '@cloudless/base';
import {
  connectHttp2Session,
  createGrpcTransportOver,
  destroyInNextTurn,
  type ClientTls,
} from '@cloudless/rpc-node/client';
import type { CoordinatorIdentity } from '../identity/coordinator-identity.js';
import { watchConnection } from './connection-watch.js';

/** Open streams of one connection, below the limit that a coordinator sets for each connection. */
const MAX_STREAMS = 100;
/** Limit of one message of the leader, bytes: the largest plans and lists have a few MiB. */
const READ_MAX_BYTES = 64 * 1024 * 1024;
/** Time to connect, milliseconds: a machine that is off does not answer at all. */
const CONNECT_TIMEOUT_MS = 1_000;
/**
 * Time that calls over a connection have to end once the address or the certificate has changed,
 * milliseconds. Clients open `logs -f` and watches again.
 */
const OLD_CONNECTION_MS = 5_000;

interface Connection {
  readonly session: ClientHttp2Session;
  readonly transport: Transport;
  readonly address: string;
  /** The certificate with which the connection was opened. */
  readonly chainPem: string | undefined;
}

/**
 * The connections of this coordinator to the leader, with its own certificate: one, and another for
 * each {@link MAX_STREAMS} calls that run at once.
 */
export class LeaderConnections {
  private readonly connections = new Set<Connection>();
  /** All open sessions, also those that get no new calls: an open session keeps the process alive. */
  private readonly sessions = new Set<ClientHttp2Session>();
  private isClosed = false;
  private readonly openStreams = new WeakMap<ClientHttp2Session, number>();
  private opening: Promise<Connection> | undefined;

  /** @param identity - Absent without TLS. */
  constructor(
    private readonly clock: Clock,
    private readonly identity: Pick<CoordinatorIdentity, 'identities' | 'server'> | undefined,
  ) {}

  /**
   * Returns a transport over an open connection to the leader.
   * @throws when the leader is not reached or not trusted.
   */
  readonly connect = async ({ address }: KnownLeader, signal: AbortSignal): Promise<Transport> => {
    if (this.isClosed) throw createClosingError();
    const tls = this.createTls();
    const usable = (connection: Connection): boolean =>
      connection.address === address && connection.chainPem === tls?.chainPem;
    for (const connection of [...this.connections])
      if (!usable(connection)) this.retire(connection);
    const free = [...this.connections].find(
      ({ session }) => (this.openStreams.get(session) ?? 0) < MAX_STREAMS,
    );
    if (free !== undefined) return free.transport;
    const opening = (this.opening ??= this.open(address, tls).finally(
      () => (this.opening = undefined),
    ));
    const opened = await opening;
    signal.throwIfAborted();
    return usable(opened) ? opened.transport : (await this.open(address, tls)).transport;
  };

  /** Ends all connections, and those that are being opened. */
  close(): void {
    this.isClosed = true;
    // Without an error, calls that wait for their response would never end.
    for (const session of this.sessions) destroyInNextTurn(session, createClosingError());
    this.connections.clear();
  }

  /** Starts no calls over a connection any more, and closes it when those that run have ended. */
  private retire(connection: Connection): void {
    const { session } = connection;
    this.connections.delete(connection);
    session.close();
    const timer = this.clock.setTimer(OLD_CONNECTION_MS, () => {
      session.destroy(
        new CloudlessError('unavailable', 'the connection to the leader was replaced'),
      );
    });
    session.once('close', () => timer.cancel());
  }

  private async open(address: string, tls: ClientTls | undefined): Promise<Connection> {
    const timeout = AbortSignal.timeout(CONNECT_TIMEOUT_MS);
    const session = await connectHttp2Session(address, tls, timeout);
    if (this.isClosed) {
      session.destroy();
      throw createClosingError();
    }
    this.sessions.add(session);
    session.once('close', () => this.sessions.delete(session));
    watchConnection(session, this.clock);
    const connection: Connection = {
      session,
      transport: createGrpcTransportOver(session, address, READ_MAX_BYTES, [
        this.countStreams(session),
      ]),
      address,
      chainPem: tls?.chainPem,
    };
    this.connections.add(connection);
    const forget = (): void => void this.connections.delete(connection);
    session.once('close', forget);
    session.once('goaway', forget);
    return connection;
  }

  /** Counts the calls of a connection until their last message. */
  private countStreams(session: ClientHttp2Session): Interceptor {
    const count = (change: number): void =>
      void this.openStreams.set(session, (this.openStreams.get(session) ?? 0) + change);
    return (next) => async (request) => {
      count(1);
      try {
        const response = await next(request);
        if (!response.stream) {
          count(-1);
          return response;
        }
        return { ...response, message: withEnd(response.message, () => count(-1)) };
      } catch (reason) {
        count(-1);
        throw reason;
      }
    };
  }

  private createTls(): ClientTls | undefined {
    if (this.identity === undefined) return undefined;
    const { identities, server } = this.identity;
    return {
      ...server.getContext(),
      bundlePem: identities.getTrustBundle().pem,
      serverIds: [],
      serverKinds: ['controller'],
      trustDomain: identities.trustDomain,
    };
  }
}

function createClosingError(): CloudlessError {
  return new CloudlessError('SHUTTING_DOWN', 'the coordinator is shutting down');
}

async function* withEnd<Item>(items: AsyncIterable<Item>, onEnd: () => void): AsyncGenerator<Item> {
  try {
    yield* items;
  } finally {
    onEnd();
  }
}
