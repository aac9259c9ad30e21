import type { Socket } from 'node:net';
import {
  assertNever,
  CloudlessError,
  definedFields,
  errorKindOf,
  errorMessageOf,
  type Log,
} from '@cloudless/base';
import { PROCESS_DNS_CAPABILITY, type ContainerStatus } from '@cloudless/runtime';
import { FrameParser, type Frame } from '../wire/frames.js';
import {
  ACCEPTS_DNS_SETTINGS,
  encodeMessage,
  EXEC_STREAMS,
  EXEC_TTY,
  LEASES,
  parseMessage,
  PROTOCOL,
  SECRETS,
  type ClientMessage,
  type SentAt,
  type SupervisorMessage,
} from '../wire/messages.js';
import { measureWaitMs } from '../wire/request-wait.js';
import { ExecSession } from './command/exec-session.js';
import { loadPtyBinding } from './command/pty-binding.js';
import type { Supervisor } from './supervisor.js';

/** Arguments of {@link ClientSession}. */
export interface ClientSessionDeps {
  readonly supervisor: Supervisor;
  readonly log: Log;
  /** Reads the milliseconds since the machine booted, which the clients read too. */
  readonly machineUptimeMs: () => number;
  /** Version of this program, for the hello. */
  readonly version: string;
  /** Called after the response to `shutdown` was sent. Must end the supervisor. */
  readonly onShutdown: () => void;
}

/**
 * A client with more unread bytes of responses and events than this is disconnected, so that a
 * client that does not read cannot fill the memory of the supervisor.
 */
const MAX_UNREAD_BYTES = 16 * 1024 * 1024;

type SessionRequest = Exclude<ClientMessage, { type: 'hello' | 'exec' }>;

/**
 * One connection of a client: answers the requests of the client, and sends events if its hello set
 * `events`. The request `exec` turns the connection into an {@link ExecSession}.
 */
export class ClientSession {
  private readonly parser = new FrameParser();
  private isGreeted = false;
  private exec: ExecSession | undefined;
  private removeListener: (() => void) | undefined;

  constructor(
    private readonly socket: Socket,
    private readonly deps: ClientSessionDeps,
  ) {
    socket.on('data', (chunk: Buffer) => this.receive(chunk));
    socket.on('error', () => socket.destroy());
    socket.on('end', () => socket.destroy());
    socket.on('close', () => {
      this.removeListener?.();
      this.exec?.close();
    });
  }

  private receive(chunk: Buffer): void {
    try {
      for (const frame of this.parser.feed(chunk)) this.handle(frame);
    } catch (reason) {
      this.deps.log.warn('client disconnected', { error: errorMessageOf(reason) });
      this.socket.destroy();
    }
  }

  private handle({ kind, payload }: Frame): void {
    if (this.exec !== undefined) return this.exec.receive(kind, payload);
    if (kind !== 'message') throw new CloudlessError('invalid', 'unexpected frame');
    const message = parseMessage<ClientMessage>(payload);
    if (message.type === 'hello') return this.onHello(message);
    if (!this.isGreeted) throw new CloudlessError('invalid', 'no hello');
    if (message.type === 'exec') {
      const { supervisor } = this.deps;
      this.exec = new ExecSession(this.socket, supervisor, message, (answer) => this.send(answer));
      return;
    }
    void this.respond(message);
  }

  /**
   * Answers a hello. A client of another protocol version gets the answer too, so that the client
   * can report both versions; then the connection is closed.
   */
  private onHello(hello: Extract<ClientMessage, { type: 'hello' }>): void {
    const capabilities = [
      ...[EXEC_STREAMS, SECRETS, ACCEPTS_DNS_SETTINGS],
      ...(this.deps.supervisor.hasLeases ? [LEASES] : []),
      ...(this.deps.supervisor.hasProcessDns ? [PROCESS_DNS_CAPABILITY] : []),
      ...(loadPtyBinding() === undefined ? [] : [EXEC_TTY]),
    ];
    this.send({
      type: 'hello',
      protocol: PROTOCOL,
      version: this.deps.version,
      pid: process.pid,
      capabilities,
    });
    if (hello.protocol !== PROTOCOL) {
      this.socket.end();
      return;
    }
    this.isGreeted = true;
    this.deps.supervisor.configure(hello.settings);
    if (hello.events)
      this.removeListener ??= this.deps.supervisor.addListener((event) =>
        this.send({ type: 'event', event }),
      );
  }

  private async respond(message: SessionRequest): Promise<void> {
    const { id } = message;
    try {
      const status = await this.perform(message);
      this.send({ type: 'done', id, ...definedFields({ status }) });
    } catch (reason) {
      this.send({ type: 'failed', id, kind: errorKindOf(reason), text: errorMessageOf(reason) });
    }
    if (message.type === 'shutdown') this.deps.onShutdown();
  }

  private async perform(message: SessionRequest): Promise<ContainerStatus | undefined> {
    const { supervisor } = this.deps;
    switch (message.type) {
      case 'start':
        return supervisor.start(message.request, this.measureWaitMs(message));
      case 'stop':
        return supervisor.requireContainer(message.containerId).stop(message.graceMs);
      case 'signal':
        supervisor.requireContainer(message.containerId).signalMain(message.signal);
        return undefined;
      case 'renew':
        supervisor.renew(message.leases, this.measureWaitMs(message));
        return undefined;
      case 'remove':
        await supervisor.remove(message.containerId);
        return undefined;
      case 'list':
        for (const status of supervisor.list()) this.send({ type: 'item', id: message.id, status });
        return undefined;
      case 'inspect':
        return supervisor.requireContainer(message.containerId).status;
      case 'drained':
        await supervisor.requireContainer(message.containerId).drained;
        return undefined;
      case 'ping':
        return undefined;
      case 'shutdown':
        await supervisor.stopAll(message.graceMs);
        return undefined;
      default:
        return assertNever(message);
    }
  }

  /**
   * Returns for how many milliseconds a message has waited in the socket; undefined when the client
   * is of an earlier version.
   */
  private measureWaitMs({ sentAtUptimeMs }: SentAt): number | undefined {
    return measureWaitMs(sentAtUptimeMs, this.deps.machineUptimeMs());
  }

  private send(message: SupervisorMessage): void {
    if (this.socket.destroyed || this.socket.writableEnded) return;
    this.socket.write(encodeMessage(message));
    if (this.exec === undefined && this.socket.writableLength > MAX_UNREAD_BYTES) {
      this.deps.log.warn('client disconnected', { error: 'the client does not read' });
      this.socket.destroy();
    }
  }
}
