import { CloudlessError, type Clock, type ContainerId } from '@cloudless/base';
import { CommandNotStartedError, NOT_STARTED_EXIT_CODES } from '../exec/command-not-started.js';
import type {
  ContainerEndpoint,
  ContainerEvent,
  ContainerRequest,
  ContainerSignal,
  ContainerStatus,
  EgressRule,
  ExecEvent,
  ExecRequest,
  LogStream,
} from '../container-runtime.js';
import { FakeContainer } from './fake-container.js';
import { FakeImages } from './fake-images.js';
import type { FakeProcessHost } from './fake-process.js';

/** Scripted result of a command. */
export interface FakeExecResult {
  readonly exitCode: number;
  readonly stdout?: string;
  readonly stderr?: string;
}

/** Returns scripted results of commands; `undefined` runs the behaviour of the command instead. */
export type FakeExecHandler = (
  containerId: ContainerId,
  request: ExecRequest,
) => FakeExecResult | undefined;

const FIRST_PORT = 20_000;
const FIRST_PID = 1_000;

/**
 * The machine of a fake runtime. Its containers survive when the runtime is closed and opened
 * again.
 */
export class FakeMachine {
  private readonly containers = new Map<ContainerId, FakeContainer>();
  private readonly listeners = new Set<(event: ContainerEvent) => void>();
  private readonly openGates = new Set<string>();
  private readonly gateWaiters = new Map<string, (() => void)[]>();
  private readonly livingChildren = new Set<string>();
  private readonly removedExecutables = new Map<string, keyof typeof NOT_STARTED_EXIT_CODES>();
  private readonly startFailures: CloudlessError[] = [];
  private readonly signalFailures: CloudlessError[] = [];
  private readonly sentSignals: ContainerSignal[] = [];
  private readonly egressFailures: CloudlessError[] = [];
  /** Rules of the latest `limitEgress` of each container. */
  private readonly egressRules = new Map<ContainerId, readonly EgressRule[]>();
  /** Images that have to be pulled; all others are present. */
  readonly images: FakeImages;
  private startedCount = 0;
  private assignedPorts = 0;
  private execHandler: FakeExecHandler = () => undefined;

  constructor(
    readonly clock: Clock,
    readonly capabilities: readonly string[],
  ) {
    this.images = new FakeImages(clock);
  }

  /** Signals that main processes have received by `ContainerRuntime.signal`, in order. */
  get signals(): readonly ContainerSignal[] {
    return this.sentSignals;
  }

  /** Makes the next signal fail. */
  failNextSignal(failure: CloudlessError): void {
    this.signalFailures.push(failure);
  }

  /** @internal For the runtime. */
  recordSignal(signal: ContainerSignal): void {
    const failure = this.signalFailures.shift();
    if (failure !== undefined) throw failure;
    this.sentSignals.push(signal);
  }

  /**
   * Returns the networks to which a container may open connections: those of its start or of the
   * latest `limitEgress`. Undefined for every destination.
   * @throws kind `notFound` when there is no such container.
   */
  findEgress(containerId: ContainerId): readonly EgressRule[] | undefined {
    return this.egressRules.get(containerId) ?? this.requireRequest(containerId).network?.egress;
  }

  /** Makes the next `limitEgress` fail, which leaves the earlier rules in force. */
  failNextEgress(failure: CloudlessError): void {
    this.egressFailures.push(failure);
  }

  /** @internal For the runtime, which has checked the container. */
  recordEgress(containerId: ContainerId, rules: readonly EgressRule[]): void {
    const failure = this.egressFailures.shift();
    if (failure !== undefined) throw failure;
    this.egressRules.set(containerId, rules);
  }

  /** Number of started containers. */
  get startCount(): number {
    return this.startedCount;
  }

  /**
   * Returns the request by which a container was started.
   * @throws kind `notFound` when there is no such container.
   */
  requireRequest(containerId: ContainerId): ContainerRequest {
    return this.requireContainer(containerId).request;
  }

  /**
   * Returns true when the main process of a container has received SIGTERM, from a stop or because
   * the lease has ended.
   * @throws kind `notFound` when there is no such container.
   */
  isStopping(containerId: ContainerId): boolean {
    return this.requireContainer(containerId).isStopping;
  }

  /**
   * Makes the main process of a container exit.
   * @throws kind `notFound` when there is no such container, `precondition` when it has exited.
   */
  exit(containerId: ContainerId, exitCode: number, reason?: string): void {
    this.requireContainer(containerId).end(exitCode, reason);
  }

  /** Adds output to a container's log; the text includes its line ends. */
  write(containerId: ContainerId, stream: LogStream, text: string): void {
    this.requireContainer(containerId).log.write(stream, new TextEncoder().encode(text));
  }

  /** Makes the next start fail. A second call makes the start after the next fail, and so on. */
  failNextStart(failure: CloudlessError): void {
    this.startFailures.push(failure);
  }

  /** Makes starts of an executable fail, because it does not exist or cannot be executed. */
  removeExecutable(name: string, reason: keyof typeof NOT_STARTED_EXIT_CODES = 'notFound'): void {
    this.removedExecutables.set(name, reason);
  }

  /** Sets the handler that returns the results of commands. */
  setExecHandler(handler: FakeExecHandler): void {
    this.execHandler = handler;
  }

  /** Opens a gate, on which a step of a behaviour waits. */
  openGate(name: string): void {
    this.openGates.add(name);
    for (const action of this.gateWaiters.get(name)?.splice(0) ?? []) action();
  }

  /** Returns true while the child process of that name runs. */
  hasChild(name: string): boolean {
    return this.livingChildren.has(name);
  }

  /**
   * Removes a container without an event, as if another program deleted it. Removes all containers
   * when `containerId` is undefined.
   */
  removeSilently(containerId?: ContainerId): void {
    if (containerId === undefined) this.containers.clear();
    else this.containers.delete(containerId);
  }

  /** Ends all running containers with exit code -1 and the reason `lost with the machine`. */
  reboot(): void {
    for (const container of this.containers.values())
      if (container.status.phase === 'running') container.end(-1, 'lost with the machine');
  }

  /** @internal For the runtime. */
  subscribe(listener: (event: ContainerEvent) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** @internal For the runtime. */
  statuses(): readonly ContainerStatus[] {
    return [...this.containers.values()].map(({ status }) => status);
  }

  /** @internal For the runtime. */
  requireContainer(containerId: ContainerId): FakeContainer {
    const container = this.containers.get(containerId);
    if (container === undefined)
      throw new CloudlessError('notFound', `no container ${containerId}`);
    return container;
  }

  /** @internal For the runtime. */
  has(containerId: ContainerId): boolean {
    return this.containers.has(containerId);
  }

  /**
   * @internal For the runtime.
   * @throws {@link CommandNotStartedError} after {@link removeExecutable}.
   */
  checkExecutable([executable = '']: readonly string[]): void {
    const reason = this.removedExecutables.get(executable);
    if (reason !== undefined)
      throw new CommandNotStartedError(
        NOT_STARTED_EXIT_CODES[reason],
        `command: no executable ${executable}`,
      );
  }

  /** @internal For the runtime. */
  remove(containerId: ContainerId): void {
    this.containers.delete(containerId);
  }

  /** @internal For the runtime, which has checked the request. */
  start(request: ContainerRequest): ContainerStatus {
    const failure = this.startFailures.shift();
    if (failure !== undefined) throw failure;
    this.startedCount += 1;
    const endpoints = request.ports.map(({ name }): ContainerEndpoint => ({
      portName: name,
      ip: '127.0.0.1',
      port: FIRST_PORT + this.assignedPorts++,
    }));
    const container = new FakeContainer(request, {
      clock: this.clock,
      pid: FIRST_PID + this.startedCount,
      endpoints,
      host: this.processHost,
      onExit: (status) => this.publish({ kind: 'exited', status }),
    });
    this.containers.set(request.containerId, container);
    const { status } = container;
    this.publish({ kind: 'started', status });
    container.run();
    return status;
  }

  /** @internal For the runtime: the events of a command that the handler answers. */
  answerExec(containerId: ContainerId, request: ExecRequest): readonly ExecEvent[] | undefined {
    const result = this.execHandler(containerId, request);
    if (result === undefined) return undefined;
    const encoder = new TextEncoder();
    const events: ExecEvent[] = [];
    for (const stream of ['stdout', 'stderr'] as const) {
      const text = result[stream] ?? '';
      if (text !== '') events.push({ kind: 'output', stream, data: encoder.encode(text) });
    }
    return [...events, { kind: 'exited', exitCode: result.exitCode }];
  }

  /** @internal State that fake processes share. */
  readonly processHost: Pick<FakeProcessHost, 'waitForGate' | 'onChildStarted' | 'onChildEnded'> = {
    waitForGate: (gate, action) => {
      if (this.openGates.has(gate)) return true;
      this.gateWaiters.set(gate, [...(this.gateWaiters.get(gate) ?? []), action]);
      return false;
    },
    onChildStarted: (name) => this.livingChildren.add(name),
    onChildEnded: (name) => this.livingChildren.delete(name),
  };

  private publish(event: ContainerEvent): void {
    for (const listener of [...this.listeners]) listener(event);
  }
}
