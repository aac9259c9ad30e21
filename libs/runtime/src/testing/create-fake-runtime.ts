import {
  CloudlessError,
  type Clock,
  type ContainerId,
  type StopSignal,
  type Timer,
} from '@cloudless/base';
import { withStartFailure } from '../exec/command-not-started.js';
import { EGRESS_CAPABILITY, EXEC_GRACE_MS, SIGNAL_CAPABILITY } from '../container-runtime.js';
import type {
  ContainerEvent,
  ContainerLease,
  ContainerRequest,
  ContainerRuntime,
  ContainerSignal,
  ContainerStatus,
  EgressRule,
  ExecEvent,
  ExecRequest,
  LogBatch,
  LogLine,
  LogRequest,
  StartProgress,
} from '../container-runtime.js';
import { PushQueue } from '../events/push-queue.js';
import { FakeMachine } from './fake-machine.js';
import { parseBehaviour } from './fake-command.js';
import { FakeProcess } from './fake-process.js';
import { FakeExecInput } from './fake-exec-input.js';

export interface FakeRuntimeOptions {
  readonly clock: Clock;
  /**
   * Default: `runtime.process`, `limits.cpu`, `limits.memory`, `disconnect.exclusive`, `exec.tty`,
   * `files.signal`.
   * With `runtime.cri` the runtime accepts images and is called `cri`. Requests that need a missing
   * capability are rejected.
   */
  readonly capabilities?: readonly string[];
}

/** A runtime in memory, with the machine by which a test controls it. */
export interface FakeRuntime extends ContainerRuntime {
  /** Controls of the test; see {@link FakeMachine}. */
  readonly machine: FakeMachine;
  /**
   * Closes this instance and opens another one on the same machine, as a restart of the agent does.
   */
  reopen(): Promise<FakeRuntime>;
}

/**
 * Creates a runtime in memory, without processes of the operating system. Everything happens at
 * once, except grace periods, timeouts, leases and pulls, which depend on the clock.
 */
export function createFakeRuntime(options: FakeRuntimeOptions): FakeRuntime {
  return new InMemoryRuntime(
    new FakeMachine(options.clock, options.capabilities ?? DEFAULT_CAPABILITIES),
  );
}

const DEFAULT_CAPABILITIES: readonly string[] = [
  'runtime.process',
  'limits.cpu',
  'limits.memory',
  'disconnect.exclusive',
  'exec.tty',
  SIGNAL_CAPABILITY,
];
const NEVER: StopSignal = new AbortController().signal;
/** A reader with more unread items than this fails with kind `exhausted`. */
const QUEUE_LIMIT = 100_000;
/** Largest chunk of command output. */
const OUTPUT_CHUNK_BYTES = 64 * 1024;

class InMemoryRuntime implements FakeRuntime {
  readonly name: string;
  private closed = false;
  private readonly openQueues = new Set<Pick<PushQueue<unknown>, 'fail'>>();

  constructor(readonly machine: FakeMachine) {
    this.name = machine.capabilities.includes('runtime.cri') ? 'cri' : 'process';
  }

  async version(): Promise<string> {
    return 'fake';
  }

  capabilities(): readonly string[] {
    return this.machine.capabilities;
  }

  async prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    this.assertOpen();
    await this.machine.images.ensure(request, progress, signal);
  }

  async start(request: ContainerRequest): Promise<ContainerStatus> {
    this.assertOpen();
    this.validate(request);
    if (request.image !== undefined) {
      await this.machine.images.ensure({ image: request.image }, () => undefined, NEVER);
      this.validate(request); // a concurrent start may have used the same id
    }
    return this.machine.start(request);
  }

  async stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus> {
    this.assertOpen();
    return this.machine.requireContainer(containerId).stop(graceMs);
  }

  async signal(containerId: ContainerId, signal: ContainerSignal): Promise<void> {
    this.assertOpen();
    const container = this.machine.requireContainer(containerId);
    this.requireCapability(true, SIGNAL_CAPABILITY, 'signal');
    if (container.status.phase !== 'running')
      throw new CloudlessError('precondition', `container ${containerId} is not running`);
    this.machine.recordSignal(signal);
    container.signal(signal);
  }

  async limitEgress(containerId: ContainerId, rules: readonly EgressRule[]): Promise<void> {
    this.assertOpen();
    this.requireCapability(true, EGRESS_CAPABILITY, 'network.egress');
    const container = this.machine.requireContainer(containerId);
    if (container.status.phase !== 'running')
      throw new CloudlessError('precondition', `container ${containerId} is not running`);
    if (container.request.network?.egress === undefined)
      throw new CloudlessError(
        'precondition',
        `container ${containerId} was started without network.egress`,
      );
    this.machine.recordEgress(containerId, rules);
  }

  async renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void> {
    this.assertOpen();
    this.requireCapability(true, 'disconnect.exclusive', 'lease');
    for (const [containerId, lease] of leases)
      if (this.machine.has(containerId)) this.machine.requireContainer(containerId).renew(lease);
  }

  async remove(containerId: ContainerId): Promise<void> {
    this.assertOpen();
    if (!this.machine.has(containerId)) return;
    if (this.machine.requireContainer(containerId).status.phase === 'running') {
      throw new CloudlessError(
        'precondition',
        `container ${containerId} is running: stop it first`,
      );
    }
    this.machine.remove(containerId);
  }

  async list(): Promise<readonly ContainerStatus[]> {
    this.assertOpen();
    return this.machine.statuses();
  }

  events(signal: StopSignal): AsyncIterable<ContainerEvent> {
    this.assertOpen();
    const queue = this.createQueue<ContainerEvent>(signal, () => stop());
    const stop = this.machine.subscribe((event) => queue.push(event));
    if (signal.aborted) stop();
    return queue;
  }

  async *logs(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncIterable<LogLine> {
    this.assertOpen();
    yield* this.machine.requireContainer(containerId).log.read(request, signal);
  }

  async *logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncIterable<LogBatch> {
    for await (const line of this.logs(containerId, request, signal)) yield { lines: [line] };
  }

  exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncIterable<ExecEvent> {
    return withStartFailure(
      containerId,
      request,
      this.execWithoutStartFailure(containerId, request, signal),
    );
  }

  private async *execWithoutStartFailure(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncIterable<ExecEvent> {
    this.assertOpen();
    const container = this.machine.requireContainer(containerId);
    if (container.status.phase !== 'running')
      throw new CloudlessError('precondition', `container ${containerId} is not running`);
    if (request.command.length === 0)
      throw new CloudlessError('invalid', 'command: must not be empty');
    this.machine.checkExecutable(request.command);
    this.requireCapability(request.tty !== undefined, 'exec.tty', 'tty');
    const scriptedEvents = this.machine.answerExec(containerId, request);
    if (scriptedEvents !== undefined) return yield* scriptedEvents;
    yield* this.runCommand(containerId, request, signal);
  }

  async close(): Promise<void> {
    this.closed = true;
    for (const queue of this.openQueues)
      queue.fail(new CloudlessError('unavailable', 'the runtime was closed'));
    this.openQueues.clear();
  }

  async reopen(): Promise<FakeRuntime> {
    await this.close();
    return new InMemoryRuntime(this.machine);
  }

  private runCommand(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): PushQueue<ExecEvent> {
    const container = this.machine.requireContainer(containerId);
    let killTimer: Timer | undefined;
    const onReaderLeft = (): void => {
      deadline?.cancel();
      process.terminate();
      if (!process.hasExited)
        killTimer ??= this.machine.clock.setTimer(EXEC_GRACE_MS, () => process.kill());
    };
    const output = this.createQueue<ExecEvent>(signal, onReaderLeft);
    const input =
      request.input === undefined ? undefined : new FakeExecInput(request.input, request.tty);
    const process: FakeProcess = new FakeProcess(parseBehaviour(request.command), {
      ...this.machine.processHost,
      env: { ...container.env, ...request.env },
      stdin: request.stdin ?? new Uint8Array(0),
      ...(input === undefined ? {} : { input: input.stdin }),
      ...(request.tty === undefined ? {} : { terminal: () => input?.size ?? request.tty }),
      write: (stream, bytes) => {
        const outputStream = request.tty === undefined ? stream : 'stdout';
        for (let start = 0; start < bytes.length; start += OUTPUT_CHUNK_BYTES) {
          output.push({
            kind: 'output',
            stream: outputStream,
            data: bytes.slice(start, start + OUTPUT_CHUNK_BYTES),
          });
        }
      },
      onExit: (exitCode) => {
        deadline?.cancel();
        killTimer?.cancel();
        input?.close();
        container.commands.delete(process);
        output.push({ kind: 'exited', exitCode });
        output.end();
      },
    });
    const { timeoutMs } = request;
    const deadline =
      timeoutMs === undefined
        ? undefined
        : this.machine.clock.setTimer(timeoutMs, () => {
            output.fail(
              new CloudlessError('deadline', `the command took longer than ${timeoutMs} ms`),
            );
            process.kill();
          });
    container.commands.add(process);
    void input?.pump((reason) => {
      output.fail(reason);
      process.kill();
    });
    if (signal.aborted) process.kill();
    else process.run();
    return output;
  }

  private validate(request: ContainerRequest): void {
    const { containerId, command, image, limits } = request;
    if (!/^[0-9a-f]{64}$/.test(containerId))
      throw new CloudlessError('invalid', 'containerId: must be 64 hex digits');
    if (this.machine.has(containerId))
      throw new CloudlessError('exists', `container ${containerId} exists`);
    if (image === undefined && command.length === 0)
      throw new CloudlessError('invalid', 'command: must not be empty');
    this.machine.checkExecutable(command);
    this.requireCapability(image !== undefined, 'runtime.cri', 'image');
    this.requireCapability(limits.cpuMillis !== undefined, 'limits.cpu', 'limits.cpuMillis');
    this.requireCapability(limits.memoryBytes !== undefined, 'limits.memory', 'limits.memoryBytes');
    this.requireCapability(request.lease !== undefined, 'disconnect.exclusive', 'lease');
    for (const { isRequested, capability, field } of listContainerNeeds(request))
      this.requireCapability(isRequested, capability, field);
  }

  /** @throws kind `unimplemented` when a requested field needs a missing capability. */
  private requireCapability(isRequested: boolean, capability: string, field: string): void {
    if (!isRequested || this.machine.capabilities.includes(capability)) return;
    throw new CloudlessError('unimplemented', `${field}: this runtime lacks ${capability}`);
  }

  private createQueue<Item>(signal: StopSignal, onClose: () => void): PushQueue<Item> {
    const queue: PushQueue<Item> = new PushQueue<Item>({
      limit: QUEUE_LIMIT,
      signal,
      onClose: () =>
        queueMicrotask(() => {
          this.openQueues.delete(queue);
          onClose();
        }),
    });
    if (!signal.aborted) this.openQueues.add(queue);
    return queue;
  }

  private assertOpen(): void {
    if (this.closed) throw new CloudlessError('unavailable', 'the runtime was closed');
  }
}

const VOLUME_CAPABILITY = {
  emptyDir: 'volumes.emptydir',
  hostPath: 'volumes.hostpath',
  named: 'volumes.named',
  prepared: 'runtime.cri',
} as const;

/** Lists the fields that only container runtimes support, with the capability that each needs. */
function listContainerNeeds({ limits, ports, volumes = [], security, network }: ContainerRequest) {
  return [
    { isRequested: limits.pids !== undefined, capability: 'limits.pids', field: 'limits.pids' },
    {
      isRequested: ports.some(({ hostPort }) => hostPort !== undefined),
      capability: 'ports.host',
      field: 'ports.hostPort',
    },
    ...volumes.map(({ name, source }) => ({
      ...{
        isRequested: true,
        capability: VOLUME_CAPABILITY[source.kind],
        field: `volumes.${name}`,
      },
    })),
    { isRequested: security !== undefined, capability: 'security.context', field: 'security' },
    {
      isRequested: security?.privileged === true,
      capability: 'security.privileged',
      field: 'security.privileged',
    },
    {
      isRequested: network?.hostNetwork === true,
      capability: 'network.host',
      field: 'network.hostNetwork',
    },
    {
      isRequested: network?.egress !== undefined,
      capability: EGRESS_CAPABILITY,
      field: 'network.egress',
    },
  ];
}
