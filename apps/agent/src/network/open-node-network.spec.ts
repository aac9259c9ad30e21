import type { AgentIdentity } from '@cloudless/agent-core';
import { HEALTHY } from '@cloudless/runtime';
import { SILENT_AFTER_MS } from '@cloudless/runtime-process';
import { followIdentity, mayStopProxy } from './open-node-network.js';
import { listCoordinators } from './proxy-settings.js';

describe('coordinators of the network proxy', () => {
  it('are the configured ones and the known ones, with the same protocol', () => {
    const known = ['https://b:1', 'https://a:1', 'http://c:1'].map((address) => ({ address }));
    expect(listCoordinators(['https://a:1'], known)).toEqual(['https://a:1', 'https://b:1']);
    expect(listCoordinators(['http://a:1'])).toEqual(['http://a:1']);
  });

  it('change with each identity that the agent stores, also when the disk is full', async () => {
    const seen: unknown[] = [];
    const store = {
      saveIdentity: async (_identity: AgentIdentity): Promise<void> => {
        throw new Error('no space');
      },
    };
    followIdentity(store, (identity) => seen.push(identity));
    const coordinators = [{ id: 'c2', address: 'http://b:1' }];
    const identity = { clusterId: 'c', highestEpoch: 1n, coordinators };
    await expect(store.saveIdentity(identity as never)).rejects.toThrow('no space');
    expect(seen).toEqual([identity]);
  });
});

describe('mayStopProxy', () => {
  const running = [{ replicaId: 'r1' }];
  const cases = [
    { name: 'a node without workloads', found: [], expected: true },
    { name: 'a node with workloads', found: running, expected: false },
    {
      name: 'an agent that stops its workloads',
      found: running,
      stopWorkloadsOnExit: true,
      expected: true,
    },
    {
      name: 'an ingress node',
      found: [],
      ingressHttp: { host: '0.0.0.0', port: 80 },
      expected: false,
    },
    {
      name: 'an ingress node for https',
      found: [],
      ingressHttps: { host: '0.0.0.0', port: 443 },
      expected: false,
    },
    {
      name: 'an ingress node whose agent stops its workloads',
      found: [],
      ingressHttp: { host: '0.0.0.0', port: 80 },
      stopWorkloadsOnExit: true,
      expected: true,
    },
    { name: 'a node whose runtime does not answer', found: undefined, expected: false },
  ];
  it.each(cases)('returns $expected for $name', async ({ found, expected, ...given }) => {
    const config = {
      ...{ stopWorkloadsOnExit: false, ingressHttp: undefined, ingressHttps: undefined },
      ...given,
    };
    const list = async (): Promise<never> => {
      if (found === undefined) throw new Error('containerd does not answer');
      return found as never;
    };
    expect(await mayStopProxy(config, { runtime: { list } })).toBe(expected);
  });

  it('asks no supervisor that is known to be silent', async () => {
    const health = () => ({ ...HEALTHY, processesSilentMs: SILENT_AFTER_MS });
    const list = () => new Promise<never>(() => undefined);
    const config = { stopWorkloadsOnExit: false };
    expect(await mayStopProxy(config as never, { runtime: { list, health } })).toBe(false);
  });
});
