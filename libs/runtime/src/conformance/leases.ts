import { describe, expect, it } from '@jest/globals';
import type { ContainerId } from '@cloudless/base';
import type { Behaviour } from './behaviour.js';
import type { CurrentMachine, RuntimeMachine } from './harness.js';
import {
  aContainerId,
  aRequest,
  waitForExit,
  createNeverAborted,
  startContainer,
  decodeLine,
} from './helpers.js';

/** Longer than any test, and shorter than the time limit of a run. */
const LONG_MS = 600_000;
/** Short enough to wait for, and longer than a renewal takes; a late renewal is refused. */
const SHORT_MS = 2_000;

/** Tests of leases. */
export function describeLeases(current: CurrentMachine): void {
  const lacksLeases = (): boolean =>
    !current().runtime.capabilities().includes('disconnect.exclusive');

  describe('the lease of a container', () => {
    it('is rejected when the runtime lacks the capability, and nothing is started', async () => {
      if (!lacksLeases()) return;
      const machine = current();
      const refusal = {
        kind: 'unimplemented',
        message: expect.stringContaining('disconnect.exclusive'),
      };
      const lease = { leaseMs: LONG_MS, graceMs: 0 };
      await expect(
        machine.runtime.start(aRequest(machine, [{ step: 'hold' }], { lease })),
      ).rejects.toMatchObject(refusal);
      await expect(machine.runtime.renew(new Map([[aContainerId(), lease]]))).rejects.toMatchObject(
        refusal,
      );
      expect(await machine.runtime.list()).toEqual([]);
    });

    it('stops the container when the lease is not renewed, and is the reason in the status', async () => {
      if (lacksLeases()) return;
      const machine = current();
      const id = await startLeased(machine, [{ step: 'onTerm', line: 'bye', exitCode: 7 }]);
      const status = waitForExit(machine.runtime, id);
      await machine.runtime.renew(new Map([[id, { leaseMs: SHORT_MS, graceMs: LONG_MS }]]));
      await machine.advanceTime(SHORT_MS);
      expect(await status).toMatchObject({
        phase: 'exited',
        exitCode: 7,
        leaseEnded: true,
        reason: 'ended by itself: its lease was not renewed',
      });
    });

    it('kills a container that does not exit within the grace period', async () => {
      if (lacksLeases()) return;
      const machine = current();
      const id = await startLeased(machine, [{ step: 'ignoreTerm' }]);
      const status = waitForExit(machine.runtime, id);
      await machine.runtime.renew(new Map([[id, { leaseMs: SHORT_MS, graceMs: 30 }]]));
      await machine.advanceTime(SHORT_MS + 30);
      expect(await status).toMatchObject({ exitCode: 137, leaseEnded: true });
    });

    it('can be shortened by a renewal, or set on a container without a lease', async () => {
      if (lacksLeases()) return;
      const machine = current();
      const [first, second] = [
        await startContainer(machine, [{ step: 'hold' }], {
          lease: { leaseMs: LONG_MS, graceMs: 0 },
        }),
        await startContainer(machine, [{ step: 'hold' }]),
      ];
      const statuses = [waitForExit(machine.runtime, first), waitForExit(machine.runtime, second)];
      const lease = { leaseMs: SHORT_MS, graceMs: 0 };
      await machine.runtime.renew(
        new Map([
          [first, lease],
          [second, lease],
          [aContainerId(), lease],
        ]),
      );
      await machine.advanceTime(SHORT_MS);
      expect(await Promise.all(statuses)).toMatchObject([
        { leaseEnded: true },
        { leaseEnded: true },
      ]);
    });

    it('does not stop the container after a renewal', async () => {
      if (lacksLeases()) return;
      const machine = current();
      const { runtime } = machine;
      const request = aRequest(machine, [{ step: 'hold' }], {
        lease: { leaseMs: 5_000, graceMs: 0 },
      });
      await runtime.start(request);
      await runtime.renew(new Map([[request.containerId, { leaseMs: LONG_MS, graceMs: 0 }]]));
      await machine.advanceTime(5_000);
      expect(await runtime.list()).toMatchObject([
        { containerId: request.containerId, phase: 'running' },
      ]);
      const stopped = await runtime.stop(request.containerId, 0);
      expect(stopped.leaseEnded).toBeUndefined();
    });

    it('does not stop the container after the lease was removed', async () => {
      if (lacksLeases()) return;
      const machine = current();
      const { runtime } = machine;
      const id = await startContainer(machine, [{ step: 'hold' }], {
        lease: { leaseMs: LONG_MS, graceMs: 0 },
      });
      await runtime.renew(new Map([[id, { leaseMs: SHORT_MS, graceMs: 0 }]]));
      await runtime.renew(new Map([[id, undefined]]));
      await machine.advanceTime(SHORT_MS);
      expect(await runtime.list()).toMatchObject([{ containerId: id, phase: 'running' }]);
      await runtime.stop(id, 0);
    });

    it('stops the container also after a restart of the caller', async () => {
      if (lacksLeases()) return;
      const machine = current();
      const id = await startContainer(machine, [{ step: 'hold' }], {
        lease: { leaseMs: LONG_MS, graceMs: 0 },
      });
      await machine.runtime.renew(new Map([[id, { leaseMs: SHORT_MS, graceMs: 0 }]]));
      const newRuntime = await machine.reopen();
      const status = waitForExit(newRuntime, id);
      await machine.advanceTime(SHORT_MS);
      expect(await status).toMatchObject({ leaseEnded: true });
    });
  });
}

/** Starts a container with a long lease and waits until the container has run the steps. */
async function startLeased(machine: RuntimeMachine, behaviour: Behaviour): Promise<ContainerId> {
  const steps: Behaviour = [
    ...behaviour,
    { step: 'write', stream: 'stdout', text: 'up\n' },
    { step: 'hold' },
  ];
  const id = await startContainer(machine, steps, { lease: { leaseMs: LONG_MS, graceMs: 0 } });
  for await (const line of machine.runtime.logs(id, { follow: true }, createNeverAborted()))
    if (decodeLine(line) === 'up') break;
  return id;
}
