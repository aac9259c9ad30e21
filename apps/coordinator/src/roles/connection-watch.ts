import type { ClientHttp2Session } from 'node:http2';
import { CloudlessError, type Clock, type Timer } from '@cloudless/base';

/** Interval of the pings, milliseconds. */
export const PING_INTERVAL_MS = 1_000;
/**
 * Time without an answer to a ping after which a connection counts as broken, milliseconds: longer
 * than the pauses of a busy leader, and shorter than the hold of a call.
 */
export const PING_TIMEOUT_MS = 3_000;

/**
 * Destroys a session whose server does not answer pings: a machine that is off, or a network that
 * drops packets, never ends a connection. Ends with the session.
 */
export function watchConnection(
  session: Pick<ClientHttp2Session, 'ping' | 'destroy' | 'destroyed' | 'once'>,
  clock: Clock,
): void {
  let timer: Timer | undefined;
  const sendPing = (): void => {
    if (session.destroyed) return;
    timer = clock.setTimer(PING_TIMEOUT_MS, () => session.destroy(createSilenceError()));
    const isSent = session.ping((reason) => {
      if (reason !== null) return; // the session ends
      timer?.cancel();
      timer = clock.setTimer(PING_INTERVAL_MS, sendPing);
    });
    if (!isSent) timer.cancel(); // the session ends
  };
  timer = clock.setTimer(PING_INTERVAL_MS, sendPing);
  session.once('close', () => timer?.cancel());
}

function createSilenceError(): CloudlessError {
  return new CloudlessError('unavailable', `no answer to a ping within ${PING_TIMEOUT_MS} ms`);
}
