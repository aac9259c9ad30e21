import { afterAll, afterEach, beforeEach, describe } from '@jest/globals';
import { describeAdoption } from './adoption.js';
import { describeEgress } from './egress.js';
import { describeEvents } from './events.js';
import { describeExec } from './exec.js';
import { describeExecStreams } from './exec-streams.js';
import type { CurrentMachine, RuntimeHarness, RuntimeMachine } from './harness.js';
import { describeLeases } from './leases.js';
import { describeLifecycle } from './lifecycle.js';
import { describeContainersOnly } from './containers-only.js';
import { describePreparation } from './preparation.js';
import { describeLogFollow } from './log-follow.js';
import { describeLogs } from './logs.js';
import { describeSignals } from './signals.js';

/**
 * Conformance suite of container runtimes. Call it at the top level of a spec.
 *
 * @example
 * ```ts
 * describeContainerRuntime('the process runtime', harness);
 * ```
 */
export function describeContainerRuntime(name: string, harness: RuntimeHarness): void {
  describe(`${name} as a container runtime`, () => {
    let machine: RuntimeMachine | undefined;
    const disposeMachine = async (): Promise<void> => {
      const openMachine = machine;
      machine = undefined;
      await openMachine?.dispose();
    };
    beforeEach(async () => {
      machine ??= await harness.open();
    });
    afterEach(async () => {
      if (machine?.reset === undefined) return disposeMachine();
      try {
        await machine.reset();
      } catch (reason) {
        await disposeMachine();
        throw reason;
      }
    });
    afterAll(disposeMachine);
    const current: CurrentMachine = () => {
      if (machine === undefined) throw new Error('no machine is open');
      return machine;
    };
    describeLifecycle(current, harness);
    describePreparation(current);
    describeContainersOnly(current);
    describeEvents(current);
    describeLogs(current);
    describeLogFollow(current, harness);
    describeExec(current, harness);
    describeExecStreams(current);
    describeAdoption(current);
    describeLeases(current);
    describeSignals(current);
    describeEgress(current);
  });
}
