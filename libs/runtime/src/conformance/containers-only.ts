import { describe, expect, it } from '@jest/globals';
import { EGRESS_CAPABILITY, type ContainerRequest } from '../container-runtime.js';
import type { CurrentMachine } from './harness.js';
import { aRequest } from './helpers.js';

const volume = { name: 'data', mountPath: '/data', readOnly: false };

/** Fields of a request, and the capability that they need. */
const CASES: readonly {
  readonly capability: string;
  readonly fields: Partial<ContainerRequest>;
}[] = [
  { capability: 'limits.cpu', fields: { limits: { cpuMillis: 100 } } },
  { capability: 'limits.memory', fields: { limits: { memoryBytes: 64 * 2 ** 20 } } },
  { capability: 'limits.pids', fields: { limits: { pids: 20 } } },
  {
    capability: 'ports.host',
    fields: { ports: [{ name: 'http', port: 80, protocol: 'tcp', hostPort: 39_991 }] },
  },
  {
    capability: 'volumes.emptydir',
    fields: { group: 'group-1', volumes: [{ ...volume, source: { kind: 'emptyDir' } }] },
  },
  {
    capability: 'volumes.hostpath',
    fields: { volumes: [{ ...volume, source: { kind: 'hostPath', path: '/srv' } }] },
  },
  {
    capability: 'volumes.named',
    fields: {
      volumes: [
        {
          ...volume,
          source: { kind: 'named', namespace: 'default', workload: 'web', name: 'data' },
        },
      ],
    },
  },
  { capability: 'security.context', fields: { security: { readOnlyRootFilesystem: true } } },
  { capability: 'security.privileged', fields: { security: { privileged: true } } },
  { capability: 'network.host', fields: { network: { hostNetwork: true } } },
  { capability: EGRESS_CAPABILITY, fields: { network: { egress: [] } } },
];

/** Tests that a runtime rejects fields that it does not support. */
export function describeContainersOnly(current: CurrentMachine): void {
  describe('start, without a capability,', () => {
    it.each(CASES)(
      'rejects a request that needs $capability, and starts nothing',
      async ({ capability, fields }) => {
        const machine = current();
        if (machine.runtime.capabilities().includes(capability)) return;
        const request = aRequest(machine, [{ step: 'hold' }], fields);
        await expect(machine.runtime.start(request)).rejects.toMatchObject({
          kind: 'unimplemented',
        });
        expect(await machine.runtime.list()).toEqual([]);
      },
    );
  });
}
