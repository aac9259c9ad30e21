import type { ContainerId, StopSignal } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import type { ContainerRuntime, ExecEvent, ExecRequest, LogLine } from '@cloudless/runtime';
import type { RuntimeHarness } from '@cloudless/runtime/conformance';
import {
  toBehaviourCommand,
  createFakeRuntime,
  type FakeMachine,
} from '@cloudless/runtime/testing';

/**
 * A bug of a container runtime. The simulation cannot show such a bug, because it replaces the
 * runtime; the conformance suite of runtimes must find the bug.
 */
export interface FaultyRuntime {
  readonly name: string;
  /** The failures that users of other orchestrators reported. */
  readonly story: string;
  /** Description of the injection into the fake runtime. */
  readonly injection: string;
  readonly inject: (runtime: ContainerRuntime, machine: FakeMachine) => ContainerRuntime;
  /** Titles of conformance cases that must fail; other cases may fail too. */
  readonly cases: readonly string[];
}

/** All bugs that the conformance suite must find. */
export const FAULTY_RUNTIMES: readonly FaultyRuntime[] = [
  {
    name: 'log loss on rotation',
    story:
      'A reader that followed a log had the old file open when the log was rotated. Lines written before the reader opened the new file were never read.',
    injection: 'a following reader misses the first three lines of each file of 10 000 lines',
    inject: (runtime) =>
      overrideRuntime(runtime, { logs: (...call) => dropRotatedLines(runtime.logs(...call)) }),
    cases: ['yields every line once across log rotation'],
  },
  {
    name: 'exec sessions that are never ended',
    story:
      'The connection of a client that had started a command broke, and nothing ended the command. After weeks of probes and shells the machine could start no more processes.',
    injection: 'a command continues after its caller has left',
    inject: (runtime) =>
      overrideRuntime(runtime, { exec: (...call) => ignoreCallerExit(runtime, ...call) }),
    cases: [
      'ends the command and its children when its signal is aborted',
      'ends the command and its children when the caller leaves the loop',
      'kills a command that ignores SIGTERM after its caller has left',
    ],
  },
  {
    name: 'zombie processes',
    story:
      'The first process of a container ended, but its children kept running or stayed in the process table without being reaped, until the machine could start no more processes.',
    injection: 'the children of a main process outlive it',
    inject: (runtime, machine) => {
      machine.processHost.onChildEnded = () => undefined;
      return runtime;
    },
    cases: [
      'kills child processes that the main process left behind',
      'kills the container and its children after the grace period, not before',
    ],
  },
];

/** Creates the conformance harness of the fake runtime with the bug. */
export function createFaultyHarness({ inject }: Pick<FaultyRuntime, 'inject'>): RuntimeHarness {
  return {
    unknownCommand: ['no-such-executable'],
    unexecutableCommand: ['unexecutable'],
    rotatingLines: 15_000,
    open: async () => {
      const clock = new ManualClock();
      let fake = createFakeRuntime({ clock });
      const { machine } = fake;
      machine.removeExecutable('no-such-executable');
      machine.removeExecutable('unexecutable', 'notExecutable');
      let runtime = inject(fake, machine);
      const expectChild = async (name: string, isRunning: boolean): Promise<void> => {
        await settle();
        if (machine.hasChild(name) !== isRunning)
          throw new Error(`child ${name} ${isRunning ? 'does not run' : 'still runs'}`);
      };
      return {
        get runtime() {
          return runtime;
        },
        command: toBehaviourCommand,
        openGate: async (name) => machine.openGate(name),
        waitForChildStart: (name) => expectChild(name, true),
        waitForChildEnd: (name) => expectChild(name, false),
        reopen: async () => {
          fake = await fake.reopen();
          return (runtime = inject(fake, machine));
        },
        advanceTime: (durationMs) => clock.advance(durationMs),
        dispose: () => runtime.close(),
      };
    },
  };
}

/** Lines after which the fake runtime rotates a log. */
const LINES_PER_FILE = 10_000n;
/** Lines at the start of each rotated file that the bug drops. */
const LOST_LINES = 3n;

async function* dropRotatedLines(lines: AsyncIterable<LogLine>): AsyncIterable<LogLine> {
  for await (const line of lines) {
    const isFirstFile = line.sequence <= LINES_PER_FILE;
    if (isFirstFile || (line.sequence - 1n) % LINES_PER_FILE >= LOST_LINES) yield line;
  }
}

/**
 * Forwards the events of a command to the caller, but forwards neither the abort signal nor the end
 * of the caller's loop to the command.
 */
async function* ignoreCallerExit(
  runtime: ContainerRuntime,
  containerId: ContainerId,
  request: ExecRequest,
  signal: StopSignal,
): AsyncIterable<ExecEvent> {
  const events = runtime
    .exec(containerId, request, new AbortController().signal)
    [Symbol.asyncIterator]();
  const callerLeft = new Promise<undefined>((resolve) => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
  for (;;) {
    const next = await Promise.race([events.next(), callerLeft]);
    if (next === undefined || next.done === true) return;
    yield next.value;
  }
}

/** Returns the runtime with some methods replaced. */
function overrideRuntime(
  runtime: ContainerRuntime,
  fault: Partial<ContainerRuntime>,
): ContainerRuntime {
  return Object.assign(Object.create(runtime) as ContainerRuntime, fault);
}
