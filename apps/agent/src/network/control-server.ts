import { chmodSync, renameSync, rmSync } from 'node:fs';
import net from 'node:net';
import { errorFields, errorMessageOf, type Log } from '@cloudless/base';
import { VERSION } from '@cloudless/app-kit';
import {
  CONTROL_PROTOCOL,
  CONTROL_SOCKET,
  encodeLine,
  LineReader,
  MAX_REQUEST_BYTES,
  parseLine,
  type ControlRequest,
  type ControlResponse,
  type ProxySettings,
} from './control-messages.js';

/** Most connections at a time; relayed connections have one each. */
const MAX_CONNECTIONS = 1_024;

type Answered = Exclude<ControlRequest, { type: 'relay' }>;
type WithoutId<Message> = Message extends { id: number } ? Omit<Message, 'id'> : never;

/** Answers of the proxy to its clients. */
export interface ControlHandler {
  readonly settings: () => ProxySettings;
  /** Answers a request. An error becomes a `failed` response. */
  answer(request: Answered): Promise<WithoutId<ControlResponse>>;
  /** Takes over a connection that carries the bytes of another proxy. */
  acceptRelay(fromNodeId: string, socket: net.Socket): void;
}

/** Sockets that this process has made. */
let drafts = 0;

/** The control socket of a proxy, in its working directory, with mode 0600. */
export class ControlServer {
  private readonly sockets = new Set<net.Socket>();

  private constructor(
    private readonly server: net.Server,
    private readonly handler: ControlHandler,
    private readonly log: Log,
  ) {
    server.maxConnections = MAX_CONNECTIONS;
    server.on('connection', (socket) => this.accept(socket));
  }

  /**
   * Listens in place of any earlier server. The caller has the lock of the directory. The socket
   * gets its name only after it listens: a server that closes removes the name under which its
   * socket was made, and a predecessor that closes late must not remove the socket of its
   * successor.
   */
  static async listen(handler: ControlHandler, log: Log): Promise<ControlServer> {
    const server = net.createServer({ allowHalfOpen: true });
    const draft = `${CONTROL_SOCKET}.${process.pid}.${(drafts += 1)}`;
    rmSync(draft, { force: true });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(draft, resolve);
    });
    chmodSync(draft, 0o600);
    renameSync(draft, CONTROL_SOCKET);
    return new ControlServer(server, handler, log);
  }

  /** Accepts no more clients and ends the connections of clients, except relayed connections. */
  close(): void {
    this.server.close();
    for (const socket of this.sockets) socket.end();
  }

  private accept(socket: net.Socket): void {
    const lines = new LineReader(MAX_REQUEST_BYTES);
    this.sockets.add(socket);
    socket.on('error', () => undefined); // `close` follows
    socket.on('close', () => this.sockets.delete(socket));
    socket.on('end', () => socket.end());
    socket.write(
      encodeLine({
        type: 'hello',
        protocol: CONTROL_PROTOCOL,
        version: VERSION,
        pid: process.pid,
        settings: this.handler.settings(),
      }),
    );
    const onData = (chunk: Buffer): void => {
      try {
        for (let line = lines.next(chunk); line !== undefined; line = lines.next()) {
          const request = parseLine<ControlRequest>(line);
          if (request.type === 'relay') {
            socket.removeAllListeners('data').removeAllListeners('end');
            this.sockets.delete(socket);
            this.relay(request.fromNodeId, socket, lines.remainder);
            return;
          }
          void this.answer(request, socket);
        }
      } catch (reason) {
        this.log.warn('control connection closed', errorFields(reason));
        socket.destroy();
      }
    };
    socket.on('data', onData);
  }

  private relay(fromNodeId: string, socket: net.Socket, firstBytes: Buffer): void {
    socket.pause();
    if (firstBytes.length > 0) socket.unshift(firstBytes);
    this.handler.acceptRelay(String(fromNodeId), socket);
  }

  private async answer(request: Answered, socket: net.Socket): Promise<void> {
    const { id } = request;
    let response: ControlResponse;
    try {
      response = { ...(await this.handler.answer(request)), id } as ControlResponse;
    } catch (reason) {
      response = { type: 'failed', id, reason: errorMessageOf(reason) };
    }
    if (!socket.destroyed) socket.write(encodeLine(response));
  }
}
