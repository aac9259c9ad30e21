import { describe, expect, it } from '@jest/globals';
import { EGRESS_CAPABILITY, type EgressRule } from '../container-runtime.js';
import type { CurrentMachine } from './harness.js';
import { aContainerId, startContainer, waitForExit } from './helpers.js';

/** Rules of each form. */
const RULES: readonly EgressRule[] = [
  { network: '10.0.0.0/8' },
  { network: '192.0.2.7/32', ports: [{ protocol: 'tcp', first: 443, last: 443 }] },
  {
    network: '2001:db8::/32',
    ports: [
      { protocol: 'tcp', first: 8000, last: 8100 },
      { protocol: 'udp', first: 53, last: 53 },
    ],
  },
];

/** Tests of `limitEgress`. What the limit does is tested on real networks. */
export function describeEgress(current: CurrentMachine): void {
  const hasEgress = (): boolean => current().runtime.capabilities().includes(EGRESS_CAPABILITY);

  describe('limitEgress', () => {
    it('rejects a call with kind unimplemented when the runtime lacks the capability', async () => {
      if (hasEgress()) return;
      const id = await startContainer(current(), [{ step: 'hold' }]);
      await expect(current().runtime.limitEgress(id, RULES)).rejects.toMatchObject({
        kind: 'unimplemented',
      });
    });

    it('replaces the rules of a container that was started with egress, also after a restart of the caller', async () => {
      if (!hasEgress()) return;
      const machine = current();
      const id = await startContainer(machine, [{ step: 'hold' }], { network: { egress: RULES } });
      await machine.runtime.limitEgress(id, []);
      const reopened = await machine.reopen();
      await Promise.all([reopened.limitEgress(id, RULES), reopened.limitEgress(id, [])]);
      expect(await reopened.list()).toMatchObject([{ containerId: id, phase: 'running' }]);
    });

    it('rejects a container without egress, an exited container, and an unknown id', async () => {
      if (!hasEgress()) return;
      const machine = current();
      const { runtime } = machine;
      const network = { egress: [] };
      const exited = await startContainer(machine, [{ step: 'exit', code: 0 }], { network });
      await waitForExit(runtime, exited);
      const unlimited = await startContainer(machine, [{ step: 'hold' }]);
      for (const id of [exited, unlimited])
        await expect(runtime.limitEgress(id, RULES)).rejects.toMatchObject({
          kind: 'precondition',
        });
      await expect(runtime.limitEgress(aContainerId(), RULES)).rejects.toMatchObject({
        kind: 'notFound',
      });
    });
  });
}
