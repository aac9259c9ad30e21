import { create } from '@bufbuild/protobuf';
import { NetworkUpdateSchema } from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { NetworkModel } from '../model/network-model.js';
import { ServiceTable } from './service-table.js';

describe('nearness of endpoints', () => {
  const nodeIds = ['here', 'same-machine', 'other-machine'];
  const model = new NetworkModel();
  const local = new Set(['here']);
  const here = { nodeId: 'here', zone: 'z1', region: '' };
  const table = new ServiceTable(model, here, createSeededRandom(1), (id) => local.has(id));
  const nearness = (): readonly string[] =>
    (table.port('default/web', 'http')?.balancer.states(0) ?? []).map((state) => state.nearness);
  table.apply(
    model.apply(
      create(NetworkUpdateSchema, {
        revision: 1n,
        reset: true,
        complete: true,
        nodes: nodeIds.map((id) => ({ id, alive: true })),
        services: [
          {
            namespace: 'default',
            name: 'web',
            uid: 'u',
            spec: { ports: [{ name: 'http', port: 80 }] },
          },
        ],
        endpoints: nodeIds.map((nodeId, index) => ({
          id: `e${index}`,
          namespace: 'default',
          service: 'web',
          nodeId,
          zone: `zone-of-${nodeId}`,
          weight: 100,
          ready: true,
          ports: [{ name: 'http', ip: '127.0.0.1', port: 8080 }],
        })),
      }),
    ),
  );

  it('is that of the own node for nodes of the same network namespace, once they are known', () => {
    expect(nearness()).toEqual(['node', 'any', 'any']);
    local.add('same-machine');
    table.noteLocalNodes(['same-machine']);
    expect(nearness()).toEqual(['node', 'node', 'any']);
  });
});
