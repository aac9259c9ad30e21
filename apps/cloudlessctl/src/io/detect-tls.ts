import * as tls from 'node:tls';

/** Time limit of the handshake. */
const TIMEOUT_MS = 2_000;

/**
 * Returns true when the server at an address answers a TLS handshake. Nothing else is sent, and the
 * server is not trusted.
 */
export function detectTls(server: string): Promise<boolean> {
  const { hostname, port } = new URL(server);
  return new Promise((resolve) => {
    const socket = tls.connect({
      host: hostname.replace(/^\[(.*)\]$/, '$1'),
      port: port === '' ? 80 : Number(port),
      rejectUnauthorized: false,
      ALPNProtocols: ['h2', 'http/1.1'],
    });
    const end = (isTls: boolean): void => {
      clearTimeout(timer);
      socket.on('error', () => undefined);
      socket.destroy();
      resolve(isTls);
    };
    const timer = setTimeout(() => end(false), TIMEOUT_MS);
    socket.once('secureConnect', () => end(true));
    socket.once('error', () => end(false));
  });
}
