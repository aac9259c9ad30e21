import type { Socket } from 'node:net';

/**
 * What every HTTP/2 connection begins with (RFC 9113, section 3.4); no request of HTTP/1.1 does.
 */
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/**
 * Decides from the first bytes of a plaintext connection which protocol its client speaks. The
 * bytes are put back, and the socket is paused: who takes it over sees it as if nothing had been
 * read.
 * @param decided - Called once; never when the socket ends before its first bytes tell.
 */
export function sniffProtocol(
  socket: Socket,
  decided: (protocol: 'h2' | 'http/1.1') => void,
): void {
  let seen: Buffer = Buffer.alloc(0);
  const onData = (chunk: Buffer): void => {
    seen = seen.length === 0 ? chunk : Buffer.concat([seen, chunk]);
    const length = Math.min(seen.length, PREFACE.length);
    const isPreface = seen.subarray(0, length).equals(PREFACE.subarray(0, length));
    if (isPreface && length < PREFACE.length) return;
    socket.off('data', onData);
    socket.off('end', onEnd);
    socket.pause();
    socket.unshift(seen);
    decided(isPreface ? 'h2' : 'http/1.1');
  };
  const onEnd = (): void => void socket.destroy();
  socket.on('data', onData);
  socket.once('end', onEnd);
}
