import { describe, expect, it } from '@jest/globals';
import type { ContainerRequest, StartProgress } from '../container-runtime.js';
import type { CurrentMachine } from './harness.js';
import { aRequest, ended, never } from './helpers.js';

/** What is done before a start. */
export function describePreparation(current: CurrentMachine): void {
  const prepare = async (request: ContainerRequest): Promise<readonly StartProgress[]> => {
    const steps: StartProgress[] = [];
    await current().runtime.prepare(request, (step) => steps.push(step), never());
    return steps;
  };

  describe('preparing a start', () => {
    it('starts nothing; the start of the same container follows', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'exit', code: 4 }]);
      await prepare(request);
      expect(await machine.runtime.list()).toEqual([]);
      await machine.runtime.start(request);
      expect(await ended(machine.runtime, request.containerId)).toMatchObject({ exitCode: 4 });
    });

    it('may be repeated, and left without a start', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'hold' }]);
      await prepare(request);
      await prepare(request);
      expect(await machine.runtime.list()).toEqual([]);
    });

    it('tells a pull by its beginning and its end, and of what is there nothing', async () => {
      const machine = current();
      const request = aRequest(machine, [{ step: 'hold' }]);
      await prepare(request);
      expect(await prepare({ ...request, imagePull: 'never' })).toEqual([]);
      const kinds = (await prepare({ ...request, imagePull: 'always' })).map(({ kind }) => kind);
      // a process has nothing to be pulled
      expect([[], ['pulling', 'pulled']]).toContainEqual(kinds);
    });
  });
}
