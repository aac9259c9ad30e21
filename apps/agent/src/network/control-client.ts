import net from 'node:net';
import { CloudlessError } from '@cloudless/base';
import { withSocketPath } from '@cloudless/app-kit/background';
import {
  CONTROL_PROTOCOL,
  CONTROL_SOCKET,
  encodeLine,
  LineReader,
  MAX_RESPONSE_BYTES,
  parseResponse,
  type ControlRequest,
  type ControlResponse,
} from './control-messages.js';

type Hello = Extract<ControlResponse, { type: 'hello' }>;
type WithoutId<Message> = Message extends { id: number } ? Omit<Message, 'id'> : never;
type Response = Exclude<ControlResponse, { type: 'hello' | 'failed' }>;
type Pending = { resolve(response: Response): void; reject(reason: unknown): void };

/** A connection of the agent to the network proxy of its node. */
export class ControlClient {
  private readonly pending = new Map<number, Pending>();
  private readonly lines = new LineReader(MAX_RESPONSE_BYTES);
  private nextId = 1;
  private helloPending: Pick<PromiseWithResolvers, 'resolve' | 'reject'> | undefined;

  private constructor(
    private readonly socket: net.Socket,
    /** Called once when the connection has closed. */
    private readonly onClose: () => void,
  ) {
    socket.on('error', () => undefined); // `close` follows
    socket.on('end', () => socket.destroy());
    socket.on('close', () => this.handleClose());
    socket.on('data', (chunk: Buffer) => this.read(chunk));
  }

  /**
   * Connects to the proxy of a directory.
   * @throws kind `unavailable` when no proxy answers, `precondition` when the proxy speaks another
   *   protocol.
   */
  static async open(
    directory: string,
    onClose: () => void,
  ): Promise<{ readonly client: ControlClient; readonly hello: Hello }> {
    const client = new ControlClient(await connectControl(directory), onClose);
    const hello = await new Promise<Hello>((resolve, reject) => {
      client.helloPending = { resolve, reject };
    });
    if (hello.protocol === CONTROL_PROTOCOL) return { client, hello };
    client.close();
    throw new CloudlessError(
      'precondition',
      `the running network proxy (process ${hello.pid}, version ${hello.version}) speaks control protocol ${hello.protocol}, and this agent ${CONTROL_PROTOCOL}: end that process, or use an agent of its version`,
    );
  }

  /** @throws kind `unavailable` when the connection closes, `precondition` when the proxy refuses. */
  request(request: WithoutId<ControlRequest>): Promise<Response> {
    if (this.socket.destroyed) return Promise.reject(createClosedError());
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      this.socket.write(encodeLine({ ...request, id } as ControlRequest));
    });
  }

  close(): void {
    this.socket.destroy();
  }

  private read(chunk: Buffer): void {
    try {
      for (let line = this.lines.next(chunk); line !== undefined; line = this.lines.next())
        this.handle(parseResponse(line));
    } catch {
      this.socket.destroy(); // the other side is no proxy
    }
  }

  private handle(response: ControlResponse): void {
    if (response.type === 'hello') {
      this.helloPending?.resolve(response);
      this.helloPending = undefined;
      return;
    }
    const pending = this.pending.get(response.id);
    this.pending.delete(response.id);
    if (response.type === 'failed')
      pending?.reject(new CloudlessError('precondition', response.reason));
    else pending?.resolve(response);
  }

  private handleClose(): void {
    this.helloPending?.reject(createClosedError());
    for (const { reject } of this.pending.values()) reject(createClosedError());
    this.pending.clear();
    this.onClose();
  }
}

interface PromiseWithResolvers {
  resolve(hello: Hello): void;
  reject(reason: unknown): void;
}

/**
 * Opens a connection that carries the bytes of another proxy. Both halves close separately.
 * @throws kind `unavailable` when no proxy answers.
 */
export async function openRelaySocket(directory: string, fromNodeId: string): Promise<net.Socket> {
  const socket = await connectControl(directory);
  const lines = new LineReader(MAX_RESPONSE_BYTES);
  await new Promise<void>((resolve, reject) => {
    const fail = (): void => reject(createClosedError());
    socket.once('close', fail);
    socket.on('error', () => undefined);
    const onData = (chunk: Buffer): void => {
      if (lines.next(chunk) === undefined) return;
      socket.off('data', onData).off('close', fail).pause();
      if (lines.remainder.length > 0) socket.unshift(lines.remainder);
      resolve();
    };
    socket.on('data', onData);
  });
  socket.write(encodeLine({ type: 'relay', fromNodeId }));
  return socket;
}

/** Returns true when a proxy accepts connections at the control socket of a directory. */
export async function acceptsControl(directory: string): Promise<boolean> {
  try {
    (await connectControl(directory)).destroy();
    return true;
  } catch {
    return false;
  }
}

function connectControl(directory: string): Promise<net.Socket> {
  return withSocketPath(
    directory,
    CONTROL_SOCKET,
    (path) =>
      new Promise((resolve, reject) => {
        const socket = net.connect({ path, allowHalfOpen: true });
        socket.once('error', () => reject(createClosedError()));
        socket.once('connect', () => resolve(socket));
      }),
  );
}

function createClosedError(): CloudlessError {
  return new CloudlessError('unavailable', 'the network proxy of this node does not answer');
}
