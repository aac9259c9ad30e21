import { request } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { CloudlessError, errorMessageOf } from '@cloudless/base';

/**
 * Subprotocol of the streams. From version 4 on, the error stream carries a `Status` with the exit
 * code.
 */
const PROTOCOL = 'v4.channel.k8s.io';
/** Largest response body of a refusal that becomes part of the error. */
const MAX_REFUSAL_BYTES = 4 * 1024;

/**
 * A connection that stays readable after a write has failed. By default Node.js destroys such a
 * connection and drops its unread data. The exit code of a command would then be lost when the
 * container runtime closes the connection with input unread.
 */
class ReadToEndSocket extends Socket {
  override _write(chunk: unknown, encoding: BufferEncoding, done: WriteDone): void {
    super._write(chunk, encoding, ignoreFailure(done));
  }

  override _writev(chunks: { chunk: unknown; encoding: BufferEncoding }[], done: WriteDone): void {
    super._writev?.(chunks, ignoreFailure(done));
  }
}

type WriteDone = (error?: Error | null) => void;

/**
 * Returns a callback that ignores the error of a write. The write then never completes, so no
 * further write follows, and the reader detects the end of the connection.
 */
function ignoreFailure(done: WriteDone): WriteDone {
  return (error) => {
    if (error === undefined || error === null) done(error);
  };
}

/**
 * Opens the connection on which the container runtime streams a command. The caller must destroy
 * the socket.
 * @param url - URL from the response to `Exec`.
 * @param signal - Ends the attempt when aborted.
 * @returns The connection, and the bytes that arrived together with the response.
 * @throws kind `unavailable` when no server answers, `unimplemented` for TLS or another protocol,
 *   `internal` when the server refuses.
 */
export function openStreamConnection(
  url: string,
  signal: AbortSignal,
): Promise<{ readonly socket: Duplex; readonly head: Buffer }> {
  const { protocol, hostname, port } = new URL(url);
  if (protocol !== 'http:') {
    return Promise.reject(
      new CloudlessError(
        'unimplemented',
        `exec: the container runtime streams over ${protocol}, which is not supported: disable TLS of its streaming server, which is reachable on this machine only`,
      ),
    );
  }
  return new Promise((resolve, reject) => {
    const call = request(url, {
      method: 'POST',
      headers: {
        Connection: 'Upgrade',
        Upgrade: 'SPDY/3.1',
        'X-Stream-Protocol-Version': PROTOCOL,
      },
      createConnection: () =>
        new ReadToEndSocket().connect(Number(port || 80), hostname.replace(/^\[|\]$/g, '')),
      signal,
    });
    call.once('upgrade', (response, socket, head) => {
      if (response.headers['x-stream-protocol-version'] === PROTOCOL)
        return resolve({ socket, head });
      socket.destroy();
      reject(
        new CloudlessError(
          'unimplemented',
          `exec: the container runtime does not support ${PROTOCOL}`,
        ),
      );
    });
    call.once('response', (response) => {
      let text = '';
      response
        .setEncoding('utf8')
        .on('data', (part: string) => (text = (text + part).slice(0, MAX_REFUSAL_BYTES)));
      response.once('close', () =>
        reject(
          new CloudlessError(
            'internal',
            `exec: the container runtime refused to stream (${response.statusCode}): ${text.trim()}`,
          ),
        ),
      );
    });
    call.once('error', (cause) =>
      reject(
        new CloudlessError(
          'unavailable',
          `exec: no streaming server answers at ${new URL(url).host}: ${errorMessageOf(cause)}`,
          { cause },
        ),
      ),
    );
    call.end();
  });
}
