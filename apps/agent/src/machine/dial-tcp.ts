import net from 'node:net';
import { CloudlessError, errorCodeOf } from '@cloudless/base';
import type { TcpDial, TcpStream } from '@cloudless/agent-core';

/** Time limit of a connection on the same machine, milliseconds. */
const CONNECT_TIMEOUT_MS = 10_000;

/** Opens a TCP connection whose two halves close separately. */
export const dialTcp: TcpDial = (ip, port) =>
  new Promise((resolve, reject) => {
    const socket = net.connect({ host: ip, port, allowHalfOpen: true, noDelay: true });
    const fail = (problem: string, cause?: unknown): void => {
      socket.destroy();
      reject(
        new CloudlessError('unavailable', `connection to ${ip}:${port} failed: ${problem}`, {
          cause,
        }),
      );
    };
    const onError = (reason: Error): void => fail(errorCodeOf(reason) ?? reason.message, reason);
    socket.setTimeout(CONNECT_TIMEOUT_MS, () => fail(`no answer within ${CONNECT_TIMEOUT_MS} ms`));
    socket.once('error', onError);
    socket.once('connect', () => {
      socket.setTimeout(0);
      socket.removeAllListeners('timeout');
      socket.off('error', onError);
      socket.on('error', () => undefined); // the reader or writer of the stream throws the error
      resolve(new SocketStream(socket, `${ip}:${port}`));
    });
  });

/**
 * Returns the stream of a connected socket.
 * @param address - For error messages.
 */
export function toTcpStream(socket: net.Socket, address: string): TcpStream {
  return new SocketStream(socket, address);
}

class SocketStream implements TcpStream {
  constructor(
    private readonly socket: net.Socket,
    private readonly address: string,
  ) {}

  get data(): AsyncIterable<Uint8Array> {
    return this.read();
  }

  write(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.socket.write(bytes, (reason) =>
        reason === null || reason === undefined
          ? resolve()
          : reject(this.createBrokenError(reason)),
      );
    });
  }

  end(): void {
    this.socket.end();
  }

  destroy(): void {
    this.socket.destroy();
  }

  private async *read(): AsyncGenerator<Uint8Array> {
    try {
      yield* this.socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
    } catch (reason) {
      throw this.createBrokenError(reason);
    }
  }

  private createBrokenError(cause: unknown): CloudlessError {
    return new CloudlessError('unavailable', `the connection to ${this.address} broke`, { cause });
  }
}
