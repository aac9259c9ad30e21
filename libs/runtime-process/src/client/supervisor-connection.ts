import net from 'node:net';
import path from 'node:path';
import {
  CloudlessError,
  type Clock,
  type ContainerId,
  type StopSignal,
  type Timer,
} from '@cloudless/base';
import type { ContainerEvent, ContainerStatus } from '@cloudless/runtime';
import { withSocketPath } from '@cloudless/app-kit/background';
import { layout } from '../supervisor/container/container-paths.js';
import { FrameParser, type Frame } from '../wire/frames.js';
import {
  encodeMessage,
  parseMessage,
  PROTOCOL,
  type ClientMessage,
  type SupervisorMessage,
  type SupervisorSettings,
} from '../wire/messages.js';

type Hello = Extract<SupervisorMessage, { type: 'hello' }>;
type WithoutId<Message> = Message extends { id: number } ? Omit<Message, 'id'> : never;

/** A request to a supervisor; the connection adds the id. */
export type SupervisorRequest = WithoutId<Exclude<ClientMessage, { type: 'hello' | 'exec' }>>;

interface PendingRequest {
  readonly items: ContainerStatus[];
  readonly resolve: (answer: SupervisorResponse) => void;
  readonly reject: (reason: unknown) => void;
}

/** Response to a request: the listed statuses, or the status of one container. */
export interface SupervisorResponse {
  readonly items: readonly ContainerStatus[];
  readonly status: ContainerStatus | undefined;
}

/** Receives what a supervisor sends without a request. */
export interface ConnectionListener {
  /** Called for each start and exit of a container. */
  readonly onEvent: (event: ContainerEvent) => void;
  /** Called once, when the connection has closed. */
  readonly onClose: () => void;
}

/**
 * Longest wait for an answer of a supervisor, beside the time of the work itself, milliseconds. A
 * supervisor answers within milliseconds; a stopped supervisor accepts connections and never
 * answers.
 */
export const ANSWER_TIMEOUT_MS = 10_000;

/** A connected socket on which both sides have exchanged their hello messages. */
export interface SupervisorSocket {
  readonly socket: net.Socket;
  readonly hello: Hello;
  readonly parser: FrameParser;
  /** Frames that arrived together with the hello. */
  readonly firstFrames: readonly Frame[];
}

/** How a client waits for the hello of a supervisor. */
export interface HelloWait {
  /** Limits the wait to {@link ANSWER_TIMEOUT_MS}. Absent: no limit. */
  readonly clock?: Pick<Clock, 'setTimer'>;
  /** Called when the supervisor has accepted the connection, which a stopped one does too. */
  readonly onAccepted?: () => void;
  /** Ends the wait when it is aborted. */
  readonly signal?: StopSignal;
}

/**
 * Connects to the supervisor of a directory and exchanges hello messages. The caller closes the
 * socket.
 * @param events - True makes the supervisor send each start and exit of a container.
 * @throws kind `unavailable` when no supervisor listens or answers in time, or `signal` is aborted
 *   before the hello, `precondition` when the supervisor speaks another protocol version, `invalid`
 *   when the other side sends no frames.
 */
export async function openSupervisorSocket(
  directory: string,
  settings: SupervisorSettings,
  events: boolean,
  { clock, onAccepted, signal }: HelloWait = {},
): Promise<SupervisorSocket> {
  const socket = await connectSocket(directory);
  onAccepted?.();
  const parser = new FrameParser();
  let hasTimedOut = false;
  const timer = clock?.setTimer(ANSWER_TIMEOUT_MS, () => {
    hasTimedOut = true;
    socket.destroy();
  });
  const onAbort = (): void => void socket.destroy();
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    if (signal?.aborted === true) throw createDisconnectedError();
    const frames = await new Promise<readonly Frame[]>((resolve, reject) => {
      socket.once('close', () =>
        reject(hasTimedOut ? createSilentError(ANSWER_TIMEOUT_MS) : createDisconnectedError()),
      );
      socket.on('error', () => undefined); // `close` follows
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
    const [first, ...firstFrames] = frames;
    if (first === undefined) throw createDisconnectedError();
    const hello = parseMessage<Hello>(first.payload);
    if (hello.protocol !== PROTOCOL) {
      const text = `the running supervisor (process ${hello.pid}, version ${hello.version}) speaks protocol ${hello.protocol}, but this program speaks protocol ${PROTOCOL}`;
      throw new CloudlessError(
        'precondition',
        `${text}: use a program of the same version, or stop all containers and end the supervisor`,
      );
    }
    return { socket, hello, parser, firstFrames };
  } catch (reason) {
    socket.destroy();
    throw reason;
  } finally {
    timer?.cancel();
    signal?.removeEventListener('abort', onAbort);
  }
}

/** A connection to the supervisor for requests and container events. */
export class SupervisorConnection {
  private readonly pending = new Map<number, PendingRequest>();
  private readonly drainWaits = new Map<ContainerId, Promise<void>>();
  private nextId = 1;
  private isClosed = false;

  /** First message of the supervisor: protocol, version, process id and capabilities. */
  readonly hello: Hello;
  private readonly socket: net.Socket;
  private readonly parser: FrameParser;

  private constructor(
    { socket, hello, parser, firstFrames }: SupervisorSocket,
    private readonly listener: ConnectionListener,
  ) {
    this.socket = socket;
    this.hello = hello;
    this.parser = parser;
    for (const { payload } of firstFrames) this.handle(parseMessage<SupervisorMessage>(payload));
    socket.on('data', (chunk: Buffer) => this.receive(chunk));
    socket.on('close', () => this.onClosed());
    socket.resume();
  }

  /**
   * Connects with events; see {@link openSupervisorSocket} for the errors. Waits without a limit
   * for a supervisor that has accepted the connection: the caller measures the wait.
   */
  static async open(
    directory: string,
    settings: SupervisorSettings,
    listener: ConnectionListener,
    wait: Omit<HelloWait, 'clock'>,
  ): Promise<SupervisorConnection> {
    return new SupervisorConnection(
      await openSupervisorSocket(directory, settings, true, wait),
      listener,
    );
  }

  get isOpen(): boolean {
    return !this.isClosed;
  }

  /**
   * Sends a request and resolves with the response.
   * @throws The error that the supervisor returned, or kind `unavailable` when the connection
   *   closed.
   */
  request(request: SupervisorRequest): Promise<SupervisorResponse> {
    if (this.isClosed) return Promise.reject(createDisconnectedError());
    const id = this.nextId++;
    // The spread loses the discriminated union.
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
  waitUntilDrained(containerId: ContainerId): Promise<void> {
    const pendingWait = this.drainWaits.get(containerId);
    if (pendingWait !== undefined) return pendingWait;
    const wait = this.request({ type: 'drained', containerId })
      .then(() => undefined)
      .finally(() => this.drainWaits.delete(containerId));
    this.drainWaits.set(containerId, wait);
    return wait;
  }

  /** Closes the connection; pending requests fail with kind `unavailable`. */
  close(): void {
    this.socket.destroy();
    this.onClosed();
  }

  private receive(chunk: Buffer): void {
    try {
      for (const { payload } of this.parser.feed(chunk))
        this.handle(parseMessage<SupervisorMessage>(payload));
    } catch {
      // The other side is no supervisor, or the stream is damaged: the owner connects again.
      this.close();
    }
  }

  private handle(message: SupervisorMessage): void {
    if (message.type === 'event') return this.listener.onEvent(message.event);
    // The hello was read before. Windows belong to the connections of commands.
    if (message.type === 'hello' || message.type === 'window') return;
    const pendingRequest = this.pending.get(message.id);
    if (message.type === 'item') {
      pendingRequest?.items.push(message.status);
      return;
    }
    this.pending.delete(message.id);
    if (message.type === 'done')
      pendingRequest?.resolve({ items: pendingRequest.items, status: message.status });
    else pendingRequest?.reject(new CloudlessError(message.kind, message.text));
  }

  private onClosed(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    for (const { reject } of this.pending.values()) reject(createDisconnectedError());
    this.pending.clear();
    this.listener.onClose();
  }
}

/** Creates the error for a supervisor that does not run or has closed the connection. */
export function createDisconnectedError(): CloudlessError {
  return new CloudlessError('unavailable', 'no connection to the supervisor');
}

/**
 * Waits for an answer of the supervisor for at most `workMs` and {@link ANSWER_TIMEOUT_MS}.
 * @param workMs - Milliseconds that the supervisor may take for the request itself, such as a grace
 *   period. Default 0.
 * @throws kind `unavailable` after that time; the error of `answer`.
 */
export async function limitAnswer<Answer>(
  answer: Promise<Answer>,
  clock: Pick<Clock, 'setTimer'>,
  workMs = 0,
): Promise<Answer> {
  const limitMs = workMs + ANSWER_TIMEOUT_MS;
  let timer: Timer | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = clock.setTimer(limitMs, () => reject(createSilentError(limitMs)));
  });
  try {
    return await Promise.race([answer, timeout]);
  } finally {
    timer?.cancel();
  }
}

function createSilentError(limitMs: number): CloudlessError {
  return new CloudlessError(
    'unavailable',
    `the supervisor of the processes does not answer: no reply within ${limitMs / 1_000} s`,
  );
}

function connectSocket(directory: string): Promise<net.Socket> {
  return withSocketPath(
    directory,
    path.basename(layout.socket(directory)),
    (target) =>
      new Promise((resolve, reject) => {
        const socket = net.connect(target);
        socket.once('connect', () => {
          socket.off('error', reject);
          resolve(socket);
        });
        socket.once('error', () => reject(createDisconnectedError()));
      }),
  );
}
