import type * as http2 from 'node:http2';
import { createNetworkClient, createNodeNetworkClient, fromConnectError } from '@cloudless/api';
import { CloudlessError, type Clock, type Timer } from '@cloudless/base';
import type { CoordinatorConnection } from '@cloudless/mesh';
import {
  connectHttp2Session,
  createGrpcTransportOver,
  destroyInNextTurn,
  type ClientTls,
} from '@cloudless/rpc-node/client';

/** Largest message of a coordinator. Updates have at most 256 KiB. */
const READ_MAX_BYTES = 8 * 1024 * 1024;
/** Time limit to connect to one coordinator, milliseconds. */
const DIAL_TIMEOUT_MS = 5_000;
/** Time limit of a report of the health of an endpoint, milliseconds. */
const REPORT_TIMEOUT_MS = 10_000;
/** Interval of pings. A coordinator that answers none within this time is given up. */
const PING_MS = 5_000;

export interface CoordinatorDiallerOptions {
  /** Current base addresses of coordinators. */
  readonly addresses: () => readonly string[];
  /** Returns certificate, key and trusted roots for connections to `https://`. */
  readonly tls: () => ClientTls;
  readonly clock: Clock;
}

/**
 * Connects the network proxy to coordinators. Every call tries the next address: the proxy calls
 * again after a failure, and every coordinator serves or forwards the calls of proxies.
 */
export class CoordinatorDialler {
  private attempts = 0;

  constructor(private readonly options: CoordinatorDiallerOptions) {}

  /**
   * Opens a connection, which the caller closes. A coordinator that stops to answer loses it.
   * @throws kind `unavailable`, or as `connectHttp2Session`.
   */
  async connect(signal: AbortSignal): Promise<CoordinatorConnection> {
    const { clock, tls, addresses } = this.options;
    const known = addresses();
    const address = known[this.attempts++ % Math.max(1, known.length)];
    if (address === undefined) throw new CloudlessError('invalid', 'no coordinator is known');
    const dialling = new AbortController();
    const abort = (): void => dialling.abort();
    signal.addEventListener('abort', abort, { once: true });
    const timer = clock.setTimer(DIAL_TIMEOUT_MS, () =>
      dialling.abort(new CloudlessError('deadline', `no connection within ${DIAL_TIMEOUT_MS} ms`)),
    );
    try {
      const clientTls = address.startsWith('https:') ? tls() : undefined;
      const session = await connectHttp2Session(address, clientTls, dialling.signal);
      const pings = keepAlive(session, clock);
      session.once('close', () => pings.end());
      const transport = createGrpcTransportOver(session, address, READ_MAX_BYTES);
      const network = createNetworkClient(transport);
      return {
        client: createNodeNetworkClient(transport),
        reportHealth: async (report) => {
          try {
            await network.updateEndpointHealth(report, { timeoutMs: REPORT_TIMEOUT_MS });
          } catch (reason) {
            throw fromConnectError(reason);
          }
        },
        close: () => destroyInNextTurn(session, createClosedError('was closed')),
      };
    } finally {
      timer.cancel();
      signal.removeEventListener('abort', abort);
    }
  }
}

/** Pings a connection until it closes, and closes a connection that does not answer. */
function keepAlive(session: http2.ClientHttp2Session, clock: Clock): { end(): void } {
  let isAnswered = true;
  let timer: Timer;
  const ping = (): void => {
    if (session.destroyed) return;
    if (!isAnswered) {
      session.destroy(createClosedError(`has not answered a ping within ${PING_MS} ms`));
      return;
    }
    isAnswered = false;
    session.ping(() => (isAnswered = true));
    timer = clock.setTimer(PING_MS, ping);
  };
  timer = clock.setTimer(PING_MS, ping);
  return { end: () => timer.cancel() };
}

const createClosedError = (what: string): CloudlessError =>
  new CloudlessError('unavailable', `the connection to the coordinator ${what}`);
