import { describe, expect, it } from '@jest/globals';
import type { ContainerRequest, StartProgress } from '../container-runtime.js';
import type { CurrentMachine } from './harness.js';
import { aRequest, waitForExit, createNeverAborted } from './helpers.js';

/** Tests of `prepare`. */
export function describePreparation(current: CurrentMachine): void {
  const prepare = async (request: ContainerRequest): Promise<readonly StartProgress[]> => {
    const steps: StartProgress[] = [];
    await current().runtime.prepare(request, (step) => steps.push(step), createNeverAborted());
    return steps;
  };

  describe('prepare', () => {
    it('starts nothing and allows a later start of the same container', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'exit', code: 4 }]);
      await prepare(request);
      expect(await machine.runtime.list()).toEqual([]);
      await machine.runtime.start(request);
      expect(await waitForExit(machine.runtime, request.containerId)).toMatchObject({
        exitCode: 4,
      });
    });

    it('can be repeated and does not require a start', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'hold' }]);
      await prepare(request);
      await prepare(request);
      expect(await machine.runtime.list()).toEqual([]);
    });

    it('reports the begin and the end of a pull, and no step for a present image', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'hold' }]);
      await prepare(request);
      expect(await prepare({ ...request, imagePull: 'never' })).toEqual([]);
      const kinds = (await prepare({ ...request, imagePull: 'always' })).map(({ kind }) => kind);
      // The process runtime has no images, so it reports no steps.
      expect([[], ['pulling', 'pulled']]).toContainEqual(kinds);
    });
  });
}
