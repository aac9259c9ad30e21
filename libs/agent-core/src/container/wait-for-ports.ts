import {
  backoffDelayMs,
  sleep,
  type BackoffPolicy,
  type Clock,
  type StopSignal,
} from '@cloudless/base';
import type { ContainerEndpoint } from '@cloudless/runtime';

/**
 * Tries one TCP connection. Resolves with true when the server accepts the connection within
 * `timeoutMs`, otherwise with false; never rejects.
 */
export type TcpConnect = (ip: string, port: number, timeoutMs: number) => Promise<boolean>;

/**
 * Delay between rounds; short at first, as most servers listen within some tens of milliseconds.
 */
const ROUND_BACKOFF: BackoffPolicy = { firstMs: 25, maxMs: 250, factor: 1.25 };
/**
 * Timeout of one connection. A connection on the same machine takes much less; a slower connection
 * counts as refused.
 */
const CONNECT_TIMEOUT_MS = 1_000;

/**
 * Resolves once every endpoint has accepted a TCP connection.
 * @throws StoppedError when `signal` is aborted, after the current round of connections.
 */
export async function waitForPorts(
  endpoints: readonly ContainerEndpoint[],
  deps: { readonly clock: Clock; readonly connect: TcpConnect },
  signal: StopSignal,
): Promise<void> {
  let pending = endpoints;
  for (let round = 1; ; round += 1) {
    const accepted = await Promise.all(
      pending.map(({ ip, port }) => deps.connect(ip, port, CONNECT_TIMEOUT_MS)),
    );
    pending = pending.filter((_endpoint, index) => accepted[index] !== true);
    if (pending.length === 0) return;
    await sleep(deps.clock, backoffDelayMs(ROUND_BACKOFF, round), signal);
  }
}
