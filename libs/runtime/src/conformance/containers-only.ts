import { describe, expect, it } from '@jest/globals';
import type { ContainerRequest } from '../container-runtime.js';
import type { CurrentMachine } from './harness.js';
import { aRequest } from './helpers.js';

const volume = { name: 'data', mountPath: '/data', readOnly: false };

/** Fields of a request and the capability that each one needs. */
const rows: readonly { readonly capability: string; readonly asks: Partial<ContainerRequest> }[] = [
  { capability: 'limits.cpu', asks: { limits: { cpuMillis: 100 } } },
  { capability: 'limits.memory', asks: { limits: { memoryBytes: 64 * 2 ** 20 } } },
  { capability: 'limits.pids', asks: { limits: { pids: 20 } } },
  {
    capability: 'ports.host',
    asks: { ports: [{ name: 'http', port: 80, protocol: 'tcp', hostPort: 39_991 }] },
  },
  {
    capability: 'volumes.emptydir',
    asks: { group: 'group-1', volumes: [{ ...volume, source: { kind: 'emptyDir' } }] },
  },
  {
    capability: 'volumes.hostpath',
    asks: { volumes: [{ ...volume, source: { kind: 'hostPath', path: '/srv' } }] },
  },
  {
    capability: 'volumes.named',
    asks: {
      volumes: [
        {
          ...volume,
          source: { kind: 'named', namespace: 'default', workload: 'web', name: 'data' },
        },
      ],
    },
  },
  { capability: 'security.context', asks: { security: { readOnlyRootFilesystem: true } } },
  { capability: 'security.privileged', asks: { security: { privileged: true } } },
  { capability: 'network.host', asks: { network: { hostNetwork: true } } },
];

/** Tests that a runtime rejects fields that it does not support. */
export function describeContainersOnly(current: CurrentMachine): void {
  describe('start of a container that needs a missing capability', () => {
    it.each(rows)(
      'rejects a request that needs $capability and starts nothing',
      async ({ capability, asks }) => {
        const machine = current();
        if (machine.runtime.capabilities().includes(capability)) return;
        const request = aRequest(machine, [{ step: 'hold' }], asks);
        await expect(machine.runtime.start(request)).rejects.toMatchObject({
          kind: 'unimplemented',
        });
        expect(await machine.runtime.list()).toEqual([]);
      },
    );
  });
}
