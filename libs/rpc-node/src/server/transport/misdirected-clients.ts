import type { Log } from '@cloudless/base';
import type { ServerConnection } from './connection.js';
import type { DetectedProtocol } from './detect-protocol.js';
import { shouldLogOccurrence } from './log-sampling.js';

const TEXT = 'this port speaks TLS; use https:// instead of http://\n';
const RESPONSE = [
  'HTTP/1.1 400 Bad Request',
  'Content-Type: text/plain; charset=utf-8',
  `Content-Length: ${Buffer.byteLength(TEXT)}`,
  'Connection: close',
  '',
  TEXT,
].join('\r\n');

/** Refuses connections that use TLS on a plaintext port, or plaintext on a TLS port. */
export class MisdirectedClients {
  private plaintextCount = 0;
  private tlsCount = 0;

  constructor(private readonly log: Log) {}

  /** Answers HTTP/1.1 with an error text, then closes the connection. Closes HTTP/2 at once. */
  refusePlaintext(connection: ServerConnection, protocol: DetectedProtocol): void {
    const { socket, remoteAddress } = connection;
    this.plaintextCount += 1;
    if (shouldLogOccurrence(this.plaintextCount))
      this.log.warn('connections refused: plaintext on a port with TLS', {
        address: remoteAddress,
        refused: this.plaintextCount,
      });
    if (protocol === 'h2') return connection.destroy();
    // unread bytes would make the kernel reset the connection before the client has the answer
    socket.on('data', () => undefined);
    socket.end(RESPONSE);
    socket.once('end', () => connection.destroy());
  }

  /** Closes the connection. */
  refuseTls(connection: ServerConnection): void {
    this.tlsCount += 1;
    if (shouldLogOccurrence(this.tlsCount))
      this.log.warn('connections refused: TLS on a plaintext port; clients must use http://', {
        address: connection.remoteAddress,
        refused: this.tlsCount,
      });
    connection.destroy();
  }
}
