import net from 'node:net';
import { CloudlessError, type ContainerId } from '@cloudless/base';
import type { ContainerEvent, ContainerStatus } from '@cloudless/runtime';
import { FrameParser, type Frame } from '../wire/frames.js';
import {
  encodeMessage,
  parseMessage,
  PROTOCOL,
  type ClientMessage,
  type SupervisorMessage,
  type SupervisorSettings,
} from '../wire/messages.js';
import { withSocketPath } from './socket-path.js';

type Hello = Extract<SupervisorMessage, { type: 'hello' }>;
type WithoutId<Message> = Message extends { id: number } ? Omit<Message, 'id'> : never;
type Request = WithoutId<Exclude<ClientMessage, { type: 'hello' | 'exec' }>>;

interface Pending {
  readonly items: ContainerStatus[];
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}

/** Response to a request: the listed statuses, or the status of one container. */
export interface Answer {
  readonly items: readonly ContainerStatus[];
  readonly status: ContainerStatus | undefined;
}

export interface ConnectionListener {
  /** Called for each start and exit of a container. */
  readonly onEvent: (event: ContainerEvent) => void;
  /** Called once, when the connection has closed. */
  readonly onClose: () => void;
}

/** A connected socket on which both sides have exchanged their hello messages. */
export interface Greeted {
  readonly socket: net.Socket;
  readonly hello: Hello;
  readonly parser: FrameParser;
  /** Frames that arrived together with the hello. */
  readonly early: readonly Frame[];
}

/**
 * Connects to the supervisor of a directory and exchanges hello messages.
 * @throws kind `unavailable` when no supervisor listens, `precondition` when the supervisor speaks
 *   another protocol version.
 */
export async function greetSupervisor(
  directory: string,
  settings: SupervisorSettings,
  events: boolean,
): Promise<Greeted> {
  const socket = await connectTo(directory);
  const parser = new FrameParser();
  try {
    const frames = await new Promise<readonly Frame[]>((resolve, reject) => {
      socket.once('close', () => reject(gone()));
      socket.on('error', () => undefined); // a close follows
      socket.once('data', (chunk: Buffer) => {
        socket.pause();
        try {
          resolve(parser.feed(chunk));
        } catch (reason) {
          reject(reason);
        }
      });
      socket.write(encodeMessage({ type: 'hello', protocol: PROTOCOL, settings, events }));
    });
    const [first, ...early] = frames;
    if (first === undefined) throw gone();
    const hello = parseMessage<Hello>(first.payload);
    if (hello.protocol !== PROTOCOL) {
      const text = `the running supervisor (process ${hello.pid}, version ${hello.version}) speaks protocol ${hello.protocol}, but this program speaks protocol ${PROTOCOL}`;
      throw new CloudlessError(
        'precondition',
        `${text}: use a program of the same version, or stop all containers and end the supervisor`,
      );
    }
    return { socket, hello, parser, early };
  } catch (reason) {
    socket.destroy();
    throw reason;
  }
}

/** A connection to the supervisor for requests and container events. */
export class Connection {
  private readonly pending = new Map<number, Pending>();
  private readonly drains = new Map<ContainerId, Promise<void>>();
  private nextId = 1;
  private over = false;

  /** First message of the supervisor: protocol, version, process id and capabilities. */
  readonly hello: Hello;
  private readonly socket: net.Socket;
  private readonly parser: FrameParser;

  private constructor(
    { socket, hello, parser, early }: Greeted,
    private readonly listener: ConnectionListener,
  ) {
    this.socket = socket;
    this.hello = hello;
    this.parser = parser;
    for (const { payload } of early) this.handle(parseMessage<SupervisorMessage>(payload));
    socket.on('data', (chunk: Buffer) => this.receive(chunk));
    socket.on('close', () => this.closed());
    socket.resume();
  }

  static async open(
    directory: string,
    settings: SupervisorSettings,
    listener: ConnectionListener,
  ): Promise<Connection> {
    return new Connection(await greetSupervisor(directory, settings, true), listener);
  }

  get isOpen(): boolean {
    return !this.over;
  }

  /**
   * Sends a request and resolves with the response.
   * @throws the error that the supervisor returned, or kind `unavailable` when the connection
   *   closed.
   */
  request(request: Request): Promise<Answer> {
    if (this.over) return Promise.reject(gone());
    const id = this.nextId++;
    // spreading loses the discriminated union
    const bytes = encodeMessage({ ...request, id } as ClientMessage);
    return new Promise((resolve, reject) => {
      this.pending.set(id, { items: [], resolve, reject });
      this.socket.write(bytes);
    });
  }

  /**
   * Resolves when all output of a container is in its log files. Concurrent callers share one
   * request.
   */
  drained(containerId: ContainerId): Promise<void> {
    const known = this.drains.get(containerId);
    if (known !== undefined) return known;
    const asked = this.request({ type: 'drained', containerId })
      .then(() => undefined)
      .finally(() => this.drains.delete(containerId));
    this.drains.set(containerId, asked);
    return asked;
  }

  close(): void {
    this.socket.destroy();
    this.closed();
  }

  private receive(chunk: Buffer): void {
    try {
      for (const { payload } of this.parser.feed(chunk))
        this.handle(parseMessage<SupervisorMessage>(payload));
    } catch {
      this.close(); // not a supervisor, or a damaged stream: the caller opens a new connection
    }
  }

  private handle(message: SupervisorMessage): void {
    if (message.type === 'event') return this.listener.onEvent(message.event);
    // the hello was read before; windows belong to exec connections
    if (message.type === 'hello' || message.type === 'window') return;
    const waiting = this.pending.get(message.id);
    if (message.type === 'item') {
      waiting?.items.push(message.status);
      return;
    }
    this.pending.delete(message.id);
    if (message.type === 'done') waiting?.resolve({ items: waiting.items, status: message.status });
    else waiting?.reject(new CloudlessError(message.kind, message.text));
  }

  private closed(): void {
    if (this.over) return;
    this.over = true;
    for (const { reject } of this.pending.values()) reject(gone());
    this.pending.clear();
    this.listener.onClose();
  }
}

/** Creates the error for a supervisor that does not run or has closed the connection. */
export function gone(): CloudlessError {
  return new CloudlessError('unavailable', 'no connection to the supervisor');
}

function connectTo(directory: string): Promise<net.Socket> {
  return withSocketPath(
    directory,
    (target) =>
      new Promise((resolve, reject) => {
        const socket = net.connect(target);
        socket.once('connect', () => {
          socket.off('error', reject);
          resolve(socket);
        });
        socket.once('error', () => reject(gone()));
      }),
  );
}
