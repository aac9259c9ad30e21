import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import type { CliIo, LocalConnection, Terminal } from './io.js';

const DEFAULT_SIZE = { columns: 80, rows: 24 };

/** Returns the terminal when standard input and output are one; otherwise undefined. */
export function findTerminal(
  input: NodeJS.ReadStream,
  output: NodeJS.WriteStream,
): Terminal | undefined {
  if (input.isTTY !== true || output.isTTY !== true) return undefined;
  return {
    get size() {
      return {
        columns: output.columns || DEFAULT_SIZE.columns,
        rows: output.rows || DEFAULT_SIZE.rows,
      };
    },
    onResize: (listener) => {
      output.on('resize', listener);
      return () => void output.off('resize', listener);
    },
    makeRaw: () => {
      input.setRawMode(true);
      return () => void input.setRawMode(false);
    },
  };
}

/** Accepts TCP connections from this machine only. */
export const listenLocally: CliIo['listen'] = (port, onConnection) =>
  new Promise((resolve, reject) => {
    const open = new Set<Socket>();
    const server: Server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      open.add(socket);
      socket.once('close', () => open.delete(socket));
      onConnection(toLocalConnection(socket));
    });
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => {
      const address = server.address();
      const close = (): void => {
        server.close();
        for (const socket of open) socket.destroy();
      };
      resolve({
        port: typeof address === 'object' && address !== null ? address.port : port,
        close,
      });
    });
  });

function toLocalConnection(socket: Socket): LocalConnection {
  const closing = new AbortController();
  socket.on('error', () => undefined); // reported by the pending read or write
  socket.once('close', () => closing.abort());
  return {
    received: socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>,
    write: (data) =>
      new Promise((resolve, reject) => {
        socket.write(data, (reason) =>
          reason === null || reason === undefined ? resolve() : reject(reason),
        );
      }),
    endSending: () => void socket.end(),
    resetConnection: () => void socket.resetAndDestroy(),
    closed: closing.signal,
  };
}
