import { aCluster, aNode, aRequest, aReservation, placedOn } from '../testing/builders.js';
import { addCustom, listCustomShortages, NO_CUSTOM } from './custom-resources.js';

const capacity = { cpuMillis: 4_000, memoryBytes: 1_000 };
const resources = { cpuMillis: 100, memoryBytes: 1 };

describe('custom resources', () => {
  it('are 0 for names that every JavaScript object has', () => {
    expect(listCustomShortages({ constructor: 1 }, NO_CUSTOM, NO_CUSTOM)).toEqual(['constructor']);
    expect(addCustom(NO_CUSTOM, { constructor: 1 }, 1)).toEqual({ constructor: 1 });
  });

  it('limit the replicas of a node, and are free again after a release', () => {
    const cluster = aCluster([aNode('n1', { capacity: { ...capacity, custom: { license: 2 } } })]);
    const request = aRequest({ resources: { ...resources, custom: { license: 1 } } });
    expect(placedOn(cluster, request, 3)).toEqual(['n1', 'n1', undefined]);
    const held = aReservation('r1', { resources: { ...resources, custom: { license: 2 } } });
    cluster.reserve(held);
    expect(placedOn(cluster, request)).toEqual([undefined]);
    expect(cluster.usage(held.nodeId)).toMatchObject({
      allocated: { custom: { license: 2 } },
      free: { custom: {} },
    });
    cluster.release(held.replicaId);
    expect(placedOn(cluster, request)).toEqual(['n1']);
  });

  it.each([
    { has: {}, text: 'needs 2 license, the node has none', lasting: true },
    { has: { license: 1 }, text: 'needs 2 license, the node has 1', lasting: true },
    { has: { license: 3 }, text: 'needs 2 license, 1 free', lasting: false },
  ])('explain a refusal: $text', ({ has, text, lasting }) => {
    const cluster = aCluster(
      [aNode('n1', { capacity: { ...capacity, custom: has } })],
      [aReservation('r1', { resources: { ...resources, custom: { license: 2 } } })],
    );
    const request = aRequest({ resources: { ...resources, custom: { license: 2 } } });
    expect(cluster.explain(request)).toMatchObject([
      { reasons: [{ filter: 'customResource', detail: 'license', text, lasting }] },
    ]);
  });

  it('suggest the largest amount that fits', () => {
    const cluster = aCluster([aNode('n1', { capacity: { ...capacity, custom: { license: 1 } } })]);
    const request = aRequest({ resources: { ...resources, custom: { license: 2 } } });
    expect(cluster.suggest(request)).toMatchObject({
      nodeId: 'n1',
      fixes: [{ kind: 'lowerCustomResource', name: 'license', atMost: 1 }],
    });
  });

  it('rejects an amount that is no whole number', () => {
    const request = aRequest({ resources: { ...resources, custom: { license: 0.5 } } });
    expect(() => aCluster([]).place(request, 1)).toThrow(
      'resources.custom["license"]: must be a whole number of at least 0, is 0.5',
    );
  });
});
