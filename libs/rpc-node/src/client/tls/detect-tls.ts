import * as tls from 'node:tls';
import { toEndpoint } from './client-tls.js';

/** Time limit of the handshake. */
const TIMEOUT_MS = 2_000;

/**
 * Returns true when the server at an address answers a TLS handshake. Nothing else is sent, and the
 * server is not trusted.
 * @param address - Base URL, whatever its scheme.
 * @param signal - Ends the attempt, with false.
 */
export function detectTls(address: string, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = tls.connect({
      ...toEndpoint(address),
      rejectUnauthorized: false,
      ALPNProtocols: ['h2', 'http/1.1'],
    });
    const end = (isTls: boolean): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      socket.on('error', () => undefined);
      socket.destroy();
      resolve(isTls);
    };
    const abort = (): void => end(false);
    const timer = setTimeout(abort, TIMEOUT_MS);
    socket.once('secureConnect', () => end(true));
    socket.once('error', abort);
    if (signal?.aborted === true) abort();
    else signal?.addEventListener('abort', abort, { once: true });
  });
}
