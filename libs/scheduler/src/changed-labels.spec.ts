import { toNodeId, toReplicaId, toWorkloadId } from '@cloudless/base';
import type { Cluster } from './index.js';
import { aCluster, aNode, aRequest, reservationFor } from './testing/builders.js';

const ssd = aRequest({ nodeSelector: { disk: 'ssd' } });

/** Requests of more label keys and topologies than the cluster keeps columns for. */
function requestManyLabels(cluster: Cluster): void {
  for (let number = 0; number < 300; number += 1) {
    cluster.place(aRequest({ nodeSelector: { [`key-${number}`]: 'x' } }), 1);
    const spread = { topology: `rack-${number}`, mode: 'preferred', maxSkew: 1 } as const;
    cluster.place(aRequest({ spread }), 1);
  }
}

/** More workloads with required anti-affinity, one after the other, than the cluster keeps. */
function reserveManyTerms(cluster: Cluster): void {
  for (let number = 0; number < 4_200; number += 1) {
    const request = aRequest({
      workloadId: toWorkloadId(`w${number}`),
      workloadAntiAffinity: [
        {
          mode: 'required',
          topology: 'node',
          selector: [{ key: 'app', operator: 'In', values: [`${number}`] }],
        },
      ],
    });
    cluster.reserve(reservationFor(request, 'r', toNodeId('n1')));
    cluster.release(toReplicaId('r'));
  }
}

describe('A node whose labels change', () => {
  it.each([
    ['at once', (): void => undefined],
    ['after requests with many other labels and topologies', requestManyLabels],
    ['after many workloads with anti-affinity', reserveManyTerms],
  ])('is not chosen for a selector that no longer matches, %s', (_name, disturb) => {
    const cluster = aCluster([aNode('n1', { labels: { disk: 'ssd' } })]);
    for (const count of [1, 2, 1]) expect(cluster.place(ssd, count)[0]?.placed).toBe(true);
    disturb(cluster);
    cluster.upsertNode(aNode('n1', { labels: { disk: 'hdd' } }));
    for (const count of [1, 2]) expect(cluster.place(ssd, count)[0]?.placed).toBe(false);
    cluster.upsertNode(aNode('n1', { labels: { disk: 'ssd' } }));
    for (const count of [1, 2]) expect(cluster.place(ssd, count)[0]?.placed).toBe(true);
  });
});
