import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import type { OutgoingHttpHeaders } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock } from '@cloudless/base';
import { ConnectFailure, connectOrFail } from './kept-connections.js';

/** Streams of one connection, after which a further connection is opened. */
const MAX_STREAMS = 100;
/** Connections to one endpoint. Further streams share them. */
const MAX_SESSIONS = 8;
/** Time for which an unused connection is kept, milliseconds. */
const KEPT_IDLE_MS = 30_000;
/** Time for an endpoint to show that it speaks HTTP/2, milliseconds. */
const SETTINGS_TIMEOUT_MS = 5_000;

interface PooledSession {
  readonly session: ClientHttp2Session;
  /** Number of open streams. */
  streams: number;
}

/** Connections to endpoints over HTTP/2 without TLS, each for many requests. */
export class Http2Sessions {
  private readonly byKey = new Map<string, Set<PooledSession>>();
  /** Connections that are being opened, by key. */
  private readonly opening = new Map<string, Promise<PooledSession>>();
  private isDraining = false;

  constructor(private readonly clock: Clock) {}

  /**
   * Sends a request.
   * @param poolKey - Connections of one key carry each other's requests.
   * @param dial - Opens a connection to the endpoint.
   * @param endStream - True when the request has no body.
   * @throws {@link ConnectFailure} when no connection exists and none can be opened.
   */
  async request(
    poolKey: string,
    dial: () => Promise<Duplex>,
    headers: OutgoingHttpHeaders,
    endStream: boolean,
  ): Promise<ClientHttp2Stream> {
    const pooled = this.find(poolKey) ?? (await this.open(poolKey, dial));
    if (pooled.session.closed || pooled.session.destroyed)
      throw new ConnectFailure('the connection ended');
    pooled.streams += 1;
    const stream = pooled.session.request(headers, { endStream });
    stream.once('close', () => {
      pooled.streams -= 1;
      if (this.isDraining && pooled.streams === 0) pooled.session.close();
    });
    return stream;
  }

  /** Keeps no connections any longer. Those that carry a request end with the request. */
  drain(): void {
    this.isDraining = true;
    for (const all of this.byKey.values())
      for (const { session, streams } of all) if (streams === 0) session.close();
  }

  /** Ends all connections. */
  close(): void {
    this.isDraining = true;
    for (const all of this.byKey.values()) for (const { session } of all) session.destroy();
  }

  private find(poolKey: string): PooledSession | undefined {
    const all = [...(this.byKey.get(poolKey) ?? [])].filter(
      ({ session }) => !session.closed && !session.destroyed,
    );
    const [best] = all.sort((a, b) => a.streams - b.streams);
    return best !== undefined && (best.streams < MAX_STREAMS || all.length >= MAX_SESSIONS)
      ? best
      : undefined;
  }

  private open(poolKey: string, dial: () => Promise<Duplex>): Promise<PooledSession> {
    const pending = this.opening.get(poolKey);
    if (pending !== undefined) return pending;
    const opened = this.connect(poolKey, dial).finally(() => this.opening.delete(poolKey));
    this.opening.set(poolKey, opened);
    return opened;
  }

  private async connect(poolKey: string, dial: () => Promise<Duplex>): Promise<PooledSession> {
    const stream = await connectOrFail(dial);
    const session = connect('http://endpoint', {
      createConnection: () => stream,
      settings: { enablePush: false },
    });
    const pooled: PooledSession = { session, streams: 0 };
    const siblings = this.byKey.get(poolKey) ?? new Set();
    this.byKey.set(poolKey, siblings.add(pooled));
    // An error ends the streams of the session, which report the error.
    session.on('error', () => undefined);
    session.setTimeout(KEPT_IDLE_MS, () => {
      if (pooled.streams === 0) session.close();
    });
    const timer = this.clock.setTimer(SETTINGS_TIMEOUT_MS, () =>
      session.destroy(new Error('no HTTP/2'), constants.NGHTTP2_CANCEL),
    );
    session.once('remoteSettings', () => timer.cancel());
    session.once('close', () => {
      timer.cancel();
      stream.destroy();
      siblings.delete(pooled);
      if (siblings.size === 0) this.byKey.delete(poolKey);
    });
    return pooled;
  }
}
