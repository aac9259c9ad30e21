import { definedFields, createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import {
  describeContainerRuntime,
  type RuntimeHarness,
  type RuntimeMachine,
} from '../conformance/index.js';
import { toBehaviourCommand, createFakeRuntime } from '../testing/index.js';
import { combineRuntimes } from './combined-runtime.js';
import { LazyRuntime } from './lazy-runtime.js';

const capabilities = ['limits.cpu', 'limits.memory', 'disconnect.exclusive', 'exec.tty'];
const lazyOptions = { name: 'cri', version: 'not open', capabilities: ['runtime.cri'] };

/**
 * Combines two fakes, of which the second is opened lazily. The suite uses the second fake when
 * `image` is given, otherwise the first.
 */
function createHarness(image?: string): RuntimeHarness {
  return {
    unknownCommand: ['no-such-executable'],
    unexecutableCommand: ['unexecutable'],
    rotatingLines: 15_000,
    open: async (): Promise<RuntimeMachine> => {
      const clock = new ManualClock();
      let processes = createFakeRuntime({
        clock,
        capabilities: ['runtime.process', ...capabilities],
      });
      let containers = createFakeRuntime({ clock, capabilities: ['runtime.cri', ...capabilities] });
      const { machine } = image === undefined ? processes : containers;
      machine.removeExecutable('no-such-executable');
      machine.removeExecutable('unexecutable', 'notExecutable');
      if (image !== undefined) machine.images.set(image);
      const open = async () => {
        const lazyContainers = new LazyRuntime({
          ...lazyOptions,
          clock,
          open: async () => containers,
        });
        await lazyContainers.setOwner('cluster');
        return combineRuntimes({
          processes,
          containers: lazyContainers,
          clock,
          random: createSeededRandom(1),
          log: silentLog,
        });
      };
      let runtime = await open();
      return {
        get runtime() {
          return runtime;
        },
        ...definedFields({ image }),
        command: toBehaviourCommand,
        openGate: async (name) => machine.openGate(name),
        waitForChildStart: async (name) => {
          await settle();
          expect(machine.hasChild(name)).toBe(true);
        },
        waitForChildEnd: async (name) => {
          await settle();
          expect(machine.hasChild(name)).toBe(false);
        },
        reopen: async () => {
          await runtime.close();
          [processes, containers] = [await processes.reopen(), await containers.reopen()];
          return (runtime = await open());
        },
        advanceTime: (durationMs) => clock.advance(durationMs),
        dispose: async () => {
          await runtime.close();
          await settle();
          for (const status of machine.statuses())
            if (status.phase === 'running') machine.exit(status.containerId, 0);
          expect(clock.pendingTimers).toBe(0);
        },
      };
    },
  };
}

describeContainerRuntime('a combined runtime, of its processes,', createHarness());
describeContainerRuntime('a combined runtime, of its containers,', createHarness('image'));
