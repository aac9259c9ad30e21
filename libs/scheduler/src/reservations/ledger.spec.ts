import { toReplicaId } from '@cloudless/base';
import { aReservation } from '../testing/builders.js';
import { NodeTable } from '../columns/node-table.js';
import { Ledger } from './ledger.js';

describe('Ledger', () => {
  it('keeps one group per workload, labels and anti-affinity, and removes groups without replicas', () => {
    const ledger = new Ledger(new NodeTable());
    ledger.add(aReservation('web-1', { labels: { app: 'web', tier: 'front' } }));
    ledger.add(aReservation('web-2', { labels: { tier: 'front', app: 'web' } }));
    ledger.add(aReservation('web-3', { labels: { app: 'web', tier: 'back' } }));
    expect([...ledger.allGroups()]).toHaveLength(2);
    for (const id of ['web-1', 'web-2', 'web-3']) ledger.remove(toReplicaId(id));
    expect([...ledger.allGroups()]).toEqual([]);
  });
});
