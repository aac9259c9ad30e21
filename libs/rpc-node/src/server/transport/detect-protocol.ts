import type { Socket } from 'node:net';

/** What the first bytes of a connection say. `http/1.1` stands for everything that is no other. */
export type DetectedProtocol = 'tls' | 'h2' | 'http/1.1';

/**
 * First bytes of every HTTP/2 connection (RFC 9113, section 3.4). No HTTP/1.1 request starts with
 * these bytes.
 */
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');
/** Type of the record that starts every TLS connection: handshake (RFC 8446, section 5.1). */
const TLS_HANDSHAKE = 0x16;

/**
 * Detects from the first bytes of a connection whether the client speaks TLS, HTTP/2 or HTTP/1.1.
 * Then puts the bytes back and pauses the socket, so that the next reader gets all bytes.
 * @param onDetected - Runs once, or never when the socket ends before the protocol is known.
 */
export function detectProtocol(
  socket: Socket,
  onDetected: (protocol: DetectedProtocol) => void,
): void {
  let received: Buffer = Buffer.alloc(0);
  const onData = (chunk: Buffer): void => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    const length = Math.min(received.length, PREFACE.length);
    const isTls = received[0] === TLS_HANDSHAKE;
    const isPreface = received.subarray(0, length).equals(PREFACE.subarray(0, length));
    if (isPreface && length < PREFACE.length) return;
    socket.off('data', onData);
    socket.off('end', onEnd);
    socket.pause();
    socket.unshift(received);
    onDetected(isTls ? 'tls' : isPreface ? 'h2' : 'http/1.1');
  };
  const onEnd = (): void => void socket.destroy();
  socket.on('data', onData);
  socket.once('end', onEnd);
}
